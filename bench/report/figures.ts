import type { LoadPoint } from "../record/bench-record.ts";
import { saturationOf, type UslFit, uslThroughput } from "../stats/usl.ts";
import {
  type Figure,
  formatCount,
  formatMs,
  formatPercent,
  formatRate,
  formatRatio,
  formatUsd,
  type Swatch,
} from "./document.ts";
import {
  clientsOf,
  endpointOf,
  type Series,
  settingText,
  type TimePart,
  timeParts,
  trustOf,
} from "./load-points.ts";
import {
  type Axis,
  type BarRow,
  barPlot,
  boxSwatch,
  countedStyle,
  crossedSwatch,
  endpointStyle,
  type LinePlot,
  linePlot,
  lineSwatch,
  openSwatch,
  type PlotLine,
  type PlotPoint,
  rangeLegend,
  rangePlot,
  ringSwatch,
} from "./plots.ts";

/** The figures of a report, from its cells. Pure. */

const milliseconds: Axis = { label: "ms", kind: "log", format: trimmed };

function trimmed(value: number): string {
  return value >= 1_000 ? formatCount(value) : String(Number(value.toPrecision(2)));
}

/** A figure of lines; one environment each, so that a path has one look. */
function lineFigure(
  title: string,
  caption: string | undefined,
  plot: LinePlot,
  marks: readonly Swatch[] = [],
): readonly Figure[] {
  if (plot.lines.every(({ points }) => points.length === 0)) return [];
  return [
    {
      title,
      ...(caption === undefined ? {} : { caption }),
      legend: [...plot.lines.map(lineSwatch), ...marks],
      draw: (width) => linePlot(plot, width),
    },
  ];
}

/** Series by environment, in their order. */
function byEnvironment<T extends { readonly environment: string }>(
  list: readonly T[],
): readonly { readonly suffix: string; readonly own: readonly T[] }[] {
  const names = [...new Set(list.map(({ environment }) => environment))];
  return names.map((name) => ({
    suffix: names.length > 1 ? `, ${name}` : "",
    own: list.filter(({ environment }) => environment === name),
  }));
}

function doubtOf(point: LoadPoint): Pick<PlotPoint, "doubt"> {
  const trust = trustOf(point);
  return trust === "good" ? {} : { doubt: trust === "unstable" ? "open" : "crossed" };
}

function doubtMarks(loadPoints: readonly LoadPoint[]): readonly Swatch[] {
  return [
    ...(loadPoints.some((point) => trustOf(point) === "unstable") ? [openSwatch] : []),
    ...(loadPoints.some((point) => trustOf(point) === "invalid") ? [crossedSwatch] : []),
  ];
}

function titleOf(name: string, point: LoadPoint): string {
  const latency = point.latencyMs;
  const times =
    latency === undefined
      ? "no answer"
      : `p50 ${formatMs(latency.p50)} ms, p95 ${formatMs(latency.p95)} ms`;
  return `${name}, ${settingText(point)}: ${formatRate(point.imagesPerSecond)} images/s, ${times}`;
}

/** p50 to p99 of each path at the smallest load. */
export function pathsFigure(
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
            weak: !latency.p99Reliable,
          },
        ];
  });
  if (rows.length === 0) return [];
  const [ok, far] = split(rows);
  const draw = { description: "Latency of each path, p50 to p99, in milliseconds", axis: "ms" };
  return [
    {
      title: "Latency of each path",
      ...(far.length === 0
        ? {}
        : {
            caption: `Not drawn, for it would be far to the right: ${far.map((row) => `\`${row.label}\` at ${row.value}`).join(", ")}.`,
          }),
      legend: rangeLegend.filter(
        ({ label }) => !label.includes("few") || ok.some(({ weak }) => weak),
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
  const x: Axis = { label: "images a request", kind: "steps", format: formatCount };
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
        `Latency by batch size and path${suffix}`,
        `p50, logarithmic.${left}`,
        {
          description: "Latency (p50) by batch size, one line for each path",
          x,
          y: { ...milliseconds, label: "p50, ms" },
          lines: plotted((point) => point.latencyMs?.p50 ?? 0),
        },
        marks,
      ),
      ...lineFigure(
        `Throughput by batch size and path${suffix}`,
        undefined,
        {
          description: "Images a second by batch size, one line for each path",
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
          ring: enough?.reached === true && enough.enough.clients === clientsOf(point),
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
          description: "Images a second by number of clients, with the fitted scalability law",
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
            "Latency (p95) by images a second, one line for each path, from few clients to many",
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

/** What each part of a request's time is called in a legend. */
const partNames: Readonly<Record<TimePart["id"], string>> = {
  network: "network and transfer",
  decode: "decode",
  queue: "queue",
  input: "input",
  infer: "model",
  output: "output",
  server: "rest of the server",
  unknown: "not known",
};

const partIds = Object.keys(partNames) as TimePart["id"][];

/** Where a request's time goes, in bars. */
export function timeFigures(
  rows: readonly {
    readonly name: string;
    readonly what: "alone" | "at its most";
    readonly point: LoadPoint;
  }[],
): readonly Figure[] {
  const titles = {
    alone: "Where a request's time goes, alone",
    "at its most": "Where a request's time goes, at each path's highest throughput",
  } as const;
  return (["alone", "at its most"] as const).flatMap((what) => {
    const drawn = rows.filter((row) => row.what === what && row.point.serialization !== "json");
    if (drawn.length === 0) return [];
    const used = new Set(drawn.flatMap(({ point }) => timeParts(point).map(({ id }) => id)));
    const bars = drawn.map(({ name, point }): BarRow => {
      const parts = timeParts(point);
      return {
        label: what === "alone" ? name : `${name}, ${loadShort(point)}`,
        value: `${formatMs(point.latencyMs?.mean ?? 0)} ms`,
        title: `${name}, ${settingText(point)}: ${parts.map(({ id, ms }) => `${partNames[id]} ${formatMs(ms)} ms`).join(", ")}`,
        segments: parts.map(({ id, ms }) => ({
          colour: id,
          value: ms,
          // its colour is too light to write on
          ...(id === "server" ? {} : { text: formatMs(ms) }),
        })),
      };
    });
    return [
      {
        title: titles[what],
        caption: "Mean of a request, ms.",
        legend: partIds.filter((id) => used.has(id)).map((id) => boxSwatch(partNames[id], id)),
        draw: (width) =>
          barPlot({ description: titles[what], rows: bars, format: trimmed, axis: "ms" }, width),
      },
    ];
  });
}

function loadShort(point: LoadPoint): string {
  return `b${point.imagesPerRequest} c${clientsOf(point) ?? "–"}`;
}

/** Dollars for 1,000 images of each path. */
export function costFigure(
  rows: readonly { readonly name: string; readonly point: LoadPoint; readonly usd: number }[],
): readonly Figure[] {
  const least = rows[0]?.usd ?? 0;
  const near = rows.filter(({ usd }) => rows.length < 3 || usd <= 12 * least);
  const far = rows.filter((row) => !near.includes(row));
  if (near.length === 0) return [];
  return [
    {
      title: "Cost of 1,000 images",
      caption: `At each path's highest throughput.${far.length === 0 ? "" : ` Not drawn, for it would be far to the right: ${far.map(({ name, usd }) => `\`${name}\` at ${formatUsd(usd)}`).join(", ")}.`}`,
      legend: [],
      draw: (width) =>
        barPlot(
          {
            description: "Dollars for 1,000 images, one bar for each path",
            axis: "US dollars",
            format: (value) => (value === 0 ? "0" : `$${Number(value.toPrecision(2))}`),
            rows: near.map(({ name, point, usd }) => ({
              label: name,
              value: formatUsd(usd),
              title: `${titleOf(name, point)}: ${formatUsd(usd)} for 1,000 images`,
              segments: [{ colour: endpointStyle(endpointOf(point)).colour, value: usd }],
            })),
          },
          width,
        ),
    },
  ];
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
        description: "Latency (p95) by requests a second, one line for each path",
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

/** Lines that are not paths, each with its own look. */
export interface PlainLine {
  readonly name: string;
  readonly points: readonly PlotPoint[];
}

export function plainFigure(
  title: string,
  caption: string | undefined,
  plot: Omit<LinePlot, "lines"> & { readonly lines: readonly PlainLine[] },
): readonly Figure[] {
  return lineFigure(title, caption, {
    ...plot,
    lines: plot.lines.map((line, i) => ({ ...line, style: countedStyle(i) })),
  });
}

/** A bar for each row, under headings. */
export function barFigure(
  title: string,
  caption: string | undefined,
  rows: readonly BarRow[],
  axis: string,
  legend: readonly Swatch[] = [],
): readonly Figure[] {
  if (rows.length === 0) return [];
  return [
    {
      title,
      ...(caption === undefined ? {} : { caption }),
      legend,
      draw: (width) => barPlot({ description: title, rows, format: trimmed, axis }, width),
    },
  ];
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
      description: "Images a second of gRPC divided by those of HTTP, by batch size",
      x: { label: "images a request", kind: "steps", format: formatCount },
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
