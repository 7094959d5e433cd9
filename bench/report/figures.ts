import type { Figure } from "../../report/document/document.ts";
import { formatCount, formatPercent } from "../../report/document/number-format.ts";
import type { Axis } from "../../report/plots/line-plot.ts";
import {
  crossedSwatch,
  endpointStyle,
  openSwatch,
  type PlotLine,
  type PlotPoint,
} from "../../report/plots/plot-styles.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import {
  byEnvironment,
  doubtMarks,
  doubtOf,
  lineFigure,
  milliseconds,
  titleOf,
} from "./figure-parts.ts";
import { type Series, trustOf } from "./load-points.ts";

/** Leaves out JSON tensors, which are ten times slower and would make the others indistinguishable. */
function withoutJson<T extends { readonly endpoint: string }>(lines: readonly T[]): readonly T[] {
  const binary = lines.filter(({ endpoint }) => !endpoint.endsWith("_json"));
  return binary.length === 0 ? lines : binary;
}

/** Latency and throughput by batch size. */
export function batchFigures(lines: readonly Series[]): readonly Figure[] {
  const x: Axis = { label: "images per request", kind: "steps", format: formatCount };
  const drawn = withoutJson(lines);
  const omission = drawn.length === lines.length ? "" : " JSON tensors are only in the tables.";
  return byEnvironment(drawn).flatMap(({ suffix, own }) => {
    const plotted = (y: (point: LoadPoint) => number): readonly PlotLine[] =>
      own.map(({ endpoint, loadPoints }) => ({
        name: endpoint,
        style: endpointStyle(endpoint),
        points: loadPoints.map((point) => ({
          x: point.imagesPerRequest,
          y: y(point),
          title: titleOf(endpoint, point),
          ...doubtOf(point),
        })),
      }));
    const marks = doubtMarks(own.flatMap(({ loadPoints }) => loadPoints));
    return [
      ...lineFigure(
        `Latency by batch size and endpoint${suffix}`,
        `p50, logarithmic.${omission}`,
        {
          description: "Latency (p50) by batch size, one line for each endpoint",
          x,
          y: { ...milliseconds, label: "p50, ms" },
          lines: plotted((point) => point.latencyMs?.p50 ?? 0),
        },
        marks,
      ),
      ...lineFigure(
        `Throughput by batch size and endpoint${suffix}`,
        undefined,
        {
          description: "Images per second by batch size, one line for each endpoint",
          x,
          y: { label: "images/s", kind: "linear", format: formatCount },
          lines: plotted((point) => point.imagesPerSecond),
        },
        marks,
      ),
    ];
  });
}

/** p95 of a series by `x`. */
export function latencyLine(
  { endpoint, loadPoints }: Series,
  x: (point: LoadPoint) => number,
  more: (point: LoadPoint) => Partial<PlotPoint> = doubtOf,
): PlotLine {
  return {
    name: endpoint,
    style: endpointStyle(endpoint),
    points: loadPoints.flatMap((point) =>
      point.latencyMs === undefined
        ? []
        : [
            {
              x: x(point),
              y: point.latencyMs.p95,
              title: titleOf(endpoint, point),
              ...more(point),
            },
          ],
    ),
  };
}

/** Latency by offered rate. */
export function rateFigures(
  lines: readonly Series[],
  rateOf: (point: LoadPoint) => number,
  isSustained: (point: LoadPoint) => boolean,
): readonly Figure[] {
  const isInvalid = (point: LoadPoint) => trustOf(point) === "invalid";
  return byEnvironment(lines).flatMap(({ suffix, own }) => {
    const all = own.flatMap(({ loadPoints }) => loadPoints);
    return lineFigure(
      `Latency by rate${suffix}`,
      "p95 from the time at which a request was due, logarithmic.",
      {
        description: "Latency (p95) by requests per second, one line for each endpoint",
        x: { label: "requests/s", kind: "linear", format: formatCount },
        y: { ...milliseconds, label: "p95, ms" },
        lines: own.map((line) =>
          latencyLine(line, rateOf, (point) => ({
            title: `${titleOf(line.endpoint, point)}, ${formatPercent(point.achievedShare ?? 1)} succeeded`,
            ...(isSustained(point) ? {} : { doubt: "open" }),
            ...(isInvalid(point) ? { doubt: "crossed" } : {}),
          })),
        ),
      },
      [
        ...(all.every(isSustained) ? [] : [{ ...openSwatch, label: "hollow: not sustained" }]),
        ...(all.some(isInvalid) ? [crossedSwatch] : []),
      ],
    );
  });
}
