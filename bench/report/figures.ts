import type { LoadPoint } from "../record/bench-record.ts";
import { saturationOf, type UslFit, uslThroughput } from "../stats/usl.ts";
import type { Figure } from "./document.ts";
import {
  byEnvironment,
  doubtMarks,
  doubtOf,
  lineFigure,
  milliseconds,
  titleOf,
} from "./figure-parts.ts";
import { clientsOf, endpointOf, type Series, settingText, trustOf } from "./load-points.ts";
import { formatCount, formatMs, formatPercent, formatRatio } from "./number-format.ts";
import {
  crossedSwatch,
  endpointStyle,
  openSwatch,
  type PlotLine,
  ringSwatch,
} from "./plot-styles.ts";
import type { Axis } from "./plots.ts";
import { rangeLegend, rangePlot } from "./row-plots.ts";

/** p50 to p99 of each endpoint at the smallest load. */
export function endpointLatencyFigure(
  contenders: readonly { readonly name: string; readonly point: LoadPoint }[],
): readonly Figure[] {
  const rows = contenders.flatMap(({ name, point }) => {
    const latency = point.latencyMs;
    return latency === undefined
      ? []
      : [
          {
            label: name,
            colour: endpointStyle(endpointOf(point)).colour,
            value: `${formatMs(latency.p50)} ms`,
            title: titleOf(name, point),
            p50: latency.p50,
            p95: latency.p95,
            p99: latency.p99,
            isP99Unreliable: !latency.p99Reliable,
          },
        ];
  });
  if (rows.length === 0) return [];
  const [ok, far] = split(rows);
  const draw = { description: "Latency of each endpoint, p50 to p99, in milliseconds", axis: "ms" };
  return [
    {
      title: "Latency of each endpoint",
      ...(far.length === 0
        ? {}
        : {
            caption: `Not drawn, for it would be far to the right: ${far.map((row) => `\`${row.label}\` at ${row.value}`).join(", ")}.`,
          }),
      legend: rangeLegend.filter(
        ({ label }) => !label.includes("few") || ok.some(({ isP99Unreliable }) => isP99Unreliable),
      ),
      draw: (width) => rangePlot({ ...draw, rows: ok }, width),
    },
  ];
}

/** What would press all others together at the left of an axis is named, not drawn. */
function split<T extends { readonly p99: number }>(rows: readonly T[]): readonly [T[], T[]] {
  const sorted = [...rows].sort((a, b) => a.p99 - b.p99);
  const middle = sorted[Math.floor((sorted.length - 1) / 2)]?.p99 ?? 0;
  const near = (row: T) => rows.length < 3 || row.p99 <= 6 * middle;
  return [rows.filter(near), rows.filter((row) => !near(row))];
}

/** JSON tensors are slower by a decade, and would press all others together. */
function withoutJson<T extends { readonly endpoint: string }>(lines: readonly T[]): readonly T[] {
  const binary = lines.filter(({ endpoint }) => !endpoint.endsWith("_json"));
  return binary.length === 0 ? lines : binary;
}

/** Latency and throughput by batch size. */
export function batchFigures(lines: readonly Series[]): readonly Figure[] {
  const x: Axis = { label: "images per request", kind: "steps", format: formatCount };
  const drawn = withoutJson(lines);
  const left =
    drawn.length === lines.length ? "" : " Without JSON tensors, which are in the tables.";
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
        `p50, logarithmic.${left}`,
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

interface Fitted extends Series {
  readonly fit?: UslFit;
  readonly points: readonly { readonly clients: number; readonly throughput: number }[];
}

/** Throughput by clients with the fitted law, and what it costs in latency. */
export function concurrencyFigures(lines: readonly Fitted[]): readonly Figure[] {
  return byEnvironment(lines).flatMap(({ suffix, own }) => {
    const marks = doubtMarks(own.flatMap(({ loadPoints }) => loadPoints));
    const growth = own.map((line): PlotLine => {
      const enough = saturationOf(line.points);
      return {
        name: line.endpoint,
        style: endpointStyle(line.endpoint),
        points: line.loadPoints.map((point) => ({
          x: clientsOf(point) ?? 1,
          y: point.imagesPerSecond,
          title: titleOf(line.endpoint, point),
          ...doubtOf(point),
          ring: enough?.reached === true && enough.sufficient.clients === clientsOf(point),
        })),
        ...(line.fit === undefined ? {} : { curve: curveOf(line.fit, line.points) }),
      };
    });
    const fitted = own.some(({ fit }) => fit !== undefined);
    return [
      ...lineFigure(
        `Throughput by concurrency${suffix}`,
        fitted
          ? "Marks are measured; lines are the fitted Universal Scalability Law."
          : "Too few numbers of clients for a fit.",
        {
          description: "Images per second by number of clients, with the fitted scalability law",
          x: { label: "clients", kind: "log", format: formatCount },
          y: { label: "images/s", kind: "linear", format: formatCount },
          lines: growth,
        },
        [
          ...(growth.some(({ points }) => points.some(({ ring }) => ring)) ? [ringSwatch] : []),
          ...marks,
        ],
      ),
      ...lineFigure(
        `Latency by throughput${suffix}`,
        "Each line goes from few clients to many: once it turns upwards, more clients only wait longer. Down and to the right is better.",
        {
          description:
            "Latency (p95) by images per second, one line for each endpoint, from few clients to many",
          x: { label: "images/s", kind: "linear", format: formatCount },
          y: { ...milliseconds, label: "p95, ms" },
          lines: own.map(({ endpoint, loadPoints }) => ({
            name: endpoint,
            style: endpointStyle(endpoint),
            points: loadPoints.flatMap((point) =>
              point.latencyMs === undefined
                ? []
                : [
                    {
                      x: point.imagesPerSecond,
                      y: point.latencyMs.p95,
                      title: titleOf(endpoint, point),
                      ...doubtOf(point),
                    },
                  ],
            ),
          })),
        },
        marks,
      ),
    ];
  });
}

const curveSteps = 60;

/** The law as far as there are points that it was fitted to. */
function curveOf(fit: UslFit, points: Fitted["points"]): readonly (readonly [number, number])[] {
  const clients = points.map((point) => point.clients);
  const [from, to] = [Math.min(...clients), Math.max(...clients)];
  return Array.from({ length: curveSteps + 1 }, (_, i) => {
    const n = from * (to / from) ** (i / curveSteps);
    return [n, uslThroughput(fit, n)] as const;
  });
}

/** Latency by offered rate. */
export function rateFigures(
  lines: readonly Series[],
  rateOf: (point: LoadPoint) => number,
  held: (point: LoadPoint) => boolean,
): readonly Figure[] {
  return byEnvironment(lines).flatMap(({ suffix, own }) =>
    lineFigure(
      `Latency by rate${suffix}`,
      "p95, counted from when a request was due, logarithmic.",
      {
        description: "Latency (p95) by requests per second, one line for each endpoint",
        x: { label: "requests/s", kind: "linear", format: formatCount },
        y: { ...milliseconds, label: "p95, ms" },
        lines: own.map(({ endpoint, loadPoints }) => ({
          name: endpoint,
          style: endpointStyle(endpoint),
          points: loadPoints.flatMap((point) =>
            point.latencyMs === undefined
              ? []
              : [
                  {
                    x: rateOf(point),
                    y: point.latencyMs.p95,
                    title: `${titleOf(endpoint, point)}, answered ${formatPercent(point.achievedShare ?? 1)}`,
                    ...(held(point) ? {} : { doubt: "open" as const }),
                    ...(trustOf(point) === "invalid" ? { doubt: "crossed" as const } : {}),
                  },
                ],
          ),
        })),
      },
      [
        ...(own.some(({ loadPoints }) => loadPoints.some((point) => !held(point)))
          ? [{ ...openSwatch, label: "hollow: not held" }]
          : []),
        ...(own.some(({ loadPoints }) => loadPoints.some((point) => trustOf(point) === "invalid"))
          ? [crossedSwatch]
          : []),
      ],
    ),
  );
}

/** gRPC against HTTP by batch size. */
export function protocolFigure(
  pairs: readonly { readonly name: string; readonly http: LoadPoint; readonly grpc: LoadPoint }[],
): readonly Figure[] {
  const least = Math.min(...pairs.map(({ http }) => clientsOf(http) ?? 1));
  const alone = pairs.filter(({ http }) => clientsOf(http) === least);
  const names = [...new Set(alone.map(({ name }) => name))];
  return lineFigure(
    "Throughput of gRPC against HTTP",
    `By batch size, ${least === 1 ? "one client" : `${least} clients`}.`,
    {
      description: "Images per second of gRPC divided by those of HTTP, by batch size",
      x: { label: "images per request", kind: "steps", format: formatCount },
      y: { label: "gRPC ÷ HTTP", kind: "linear", format: (value) => value.toFixed(1) },
      rule: { y: 1, label: "as much" },
      lines: names.map((name) => ({
        name,
        style: endpointStyle(name.split(" ").at(-1) ?? name),
        points: alone
          .filter((pair) => pair.name === name)
          .sort((a, b) => a.http.imagesPerRequest - b.http.imagesPerRequest)
          .map(({ http, grpc }) => ({
            x: http.imagesPerRequest,
            y: grpc.imagesPerSecond / http.imagesPerSecond,
            title: `${name}, ${settingText(http)}: ${formatRatio(grpc.imagesPerSecond / http.imagesPerSecond)}`,
          })),
      })),
    },
  );
}
