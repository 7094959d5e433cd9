import {
  type DataTable,
  type Field,
  type Figure,
  newSection,
  numberField,
  type Section,
  type Swatch,
  tableOf,
} from "../../report/document/document.ts";
import {
  counted,
  formatCount,
  formatPercent,
  formatRate,
} from "../../report/document/number-format.ts";
import { endpointStyle, type PlotLine, ringSwatch } from "../../report/plots/plot-styles.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import type { Interval } from "../stats/intervals.ts";
import {
  fitUsl,
  type Point,
  saturationOf,
  type UslFit,
  type UslPeak,
  uslMinimumPoints,
  uslPeak,
  uslThroughput,
} from "../stats/usl.ts";
import {
  byEnvironment,
  doubtMarks,
  doubtOf,
  lineFigure,
  milliseconds,
  titleOf,
} from "./figure-parts.ts";
import { latencyLine } from "./figures.ts";
import { concurrencyPoints } from "./load-point-grid.ts";
import {
  latencyFields,
  loadPointRows,
  metricField,
  nameField,
  trustField,
} from "./load-point-table.ts";
import { clientsOf, isUnmodified, type Series, seriesOf, trustOf } from "./load-points.ts";
import { studyNotes } from "./study-section.ts";

interface ConcurrencyLine extends Series {
  readonly fit?: UslFit;
  /** Intervals of the fitted peak over the rounds. */
  readonly peak?: UslPeak;
  readonly points: readonly Point[];
  /** Fit of the throughput by number of clients; absent with too few numbers of clients, or an invalid load point among them. */
  readonly saturation?: ReturnType<typeof saturationOf>;
}

function concurrencyLines(loadPoints: readonly LoadPoint[]): readonly ConcurrencyLine[] {
  return seriesOf(loadPoints.filter(isUnmodified)).flatMap((series): readonly ConcurrencyLine[] => {
    const measured = concurrencyPoints(series.loadPoints).filter(
      (point) => trustOf(point) !== "empty",
    );
    if (measured.length < 2) return [];
    const points = measured
      .filter((point) => trustOf(point) !== "invalid")
      .map((point) => ({ clients: clientsOf(point) ?? 1, throughput: point.imagesPerSecond }));
    const isComplete = points.length === measured.length && points.length >= uslMinimumPoints;
    const fitted = isComplete && {
      fit: fitUsl(points),
      peak: uslPeak(pointsByRound(measured)),
      saturation: saturationOf(points),
    };
    return [{ ...series, loadPoints: measured, points, ...fitted }];
  });
}

/** Points of each round that all load points have. */
function pointsByRound(loadPoints: readonly LoadPoint[]): readonly (readonly Point[])[] {
  const numbers = loadPoints[0]?.rounds.map(({ round }) => round) ?? [];
  return numbers.map((number) =>
    loadPoints.flatMap((point) => {
      const found = point.rounds.find(({ round }) => round === number);
      if (found === undefined) return [];
      return [{ clients: clientsOf(point) ?? 1, throughput: found.imagesPerSecond }];
    }),
  );
}

export function concurrencySection(record: BenchRecord): Section | undefined {
  const lines = concurrencyLines(record.loadPoints);
  if (lines.length === 0) return undefined;
  const batch = lines[0]?.loadPoints[0]?.imagesPerRequest ?? 1;
  const answer = lines.every(({ saturation }) => saturation === undefined)
    ? [
        `Saturation is not judged: that requires at least ${uslMinimumPoints} numbers of clients, all of them valid.`,
      ]
    : lines.map(saturationText);
  return newSection("concurrency", "Concurrency and saturation", {
    answer,
    figures: concurrencyFigures(lines),
    tables: [
      saturationTable(lines),
      {
        isReference: true,
        ...tableOf(
          `Throughput and latency by clients, ${counted(batch, "image")} per request`,
          loadPointRows(lines),
          [
            nameField,
            numberField("clients", ({ point }) => clientsOf(point), formatCount),
            metricField("throughput"),
            ...latencyFields,
            metricField("averageBatch"),
            trustField,
          ],
        ),
      },
    ],
    notes: [
      ...(lines.some(({ fit }) => fit !== undefined) ? [fitNote] : []),
      ...studyNotes(record, "concurrency"),
    ],
  });
}

function saturationText({ name, loadPoints, points, saturation }: ConcurrencyLine): string {
  if (saturation === undefined) {
    return `\`${name}\`: saturation is not judged; that requires at least ${uslMinimumPoints} numbers of clients, all of them valid, and ${points.length} of ${loadPoints.length} are.`;
  }
  const { maximum, sufficient, reached } = saturation;
  return reached
    ? `\`${name}\` reaches 95 % of its ${formatRate(maximum.throughput)} images/s with ${counted(sufficient.clients, "client")}; more clients only add latency.`
    : `\`${name}\` is not saturated at ${counted(maximum.clients, "client")}, ${formatRate(maximum.throughput)} images/s.`;
}

const fitNote =
  "Fitted: the Universal Scalability Law, X(N) = λN / (1 + σ(N − 1) + κN(N − 1)). λ is the rate of one client, σ the contention (serial fraction), κ the coherency cost between clients; the residual is the root mean square of the relative difference from the measured points. The intervals (95 %) come from one fit for each round; there is none if a round has no maximum. Beyond the measured numbers of clients, the fitted peak is an extrapolation.";

/** Returns whether the fitted peak is beyond the measured numbers of clients, or unknown. */
function isExtrapolated({ fit, points }: ConcurrencyLine): boolean {
  const largest = Math.max(...points.map(({ clients }) => clients));
  return (fit?.peak?.clients ?? largest + 1) > largest;
}

function saturationTable(rows: readonly ConcurrencyLine[]): DataTable {
  const hasFit = rows.some(({ fit }) => fit !== undefined);
  return tableOf(hasFit ? "Saturation, measured and fitted" : "Saturation", rows, [
    nameField,
    numberField("maximum images/s", ({ saturation }) => saturation?.maximum.throughput, formatRate),
    numberField("clients at maximum", ({ saturation }) => saturation?.maximum.clients, formatCount),
    numberField(
      "clients at 95 %",
      ({ saturation }) =>
        saturation?.reached === true ? saturation.sufficient.clients : undefined,
      formatCount,
      "Smallest number of clients that reaches 95 % of the maximum",
    ),
    ...(hasFit ? fitFields : []),
  ]);
}

function intervalField(
  label: string,
  read: (row: ConcurrencyLine) => Interval | undefined,
  format: (value: number) => string,
): Field<ConcurrencyLine> {
  return {
    label,
    kind: "number",
    title: "95 % confidence interval over the rounds",
    cell: (row) => {
      const interval = read(row);
      if (interval === undefined) return { text: "–", tone: "quiet", title: withoutInterval(row) };
      return { text: `${format(interval.low)} to ${format(interval.high)}`, sort: interval.low };
    },
  };
}

function withoutInterval({ peak }: ConcurrencyLine): string {
  return peak === undefined
    ? "fewer than two rounds"
    : `${peak.bounded} of ${counted(peak.rounds, "round")} have a maximum or an asymptote`;
}

const fitFields: readonly Field<ConcurrencyLine>[] = [
  numberField(
    "fitted peak images/s",
    ({ fit }) => fit?.peak?.throughput ?? fit?.ceiling,
    formatRate,
    undefined,
    (line) => (isExtrapolated(line) ? { tone: "quiet", title: "beyond the measured range" } : {}),
  ),
  intervalField("95 %", ({ peak }) => peak?.throughput, formatRate),
  numberField(
    "clients at peak",
    ({ fit }) => fit?.peak?.clients,
    formatCount,
    undefined,
    (line) => (isExtrapolated(line) ? { tone: "quiet" } : {}),
  ),
  intervalField("clients, 95 %", ({ peak }) => peak?.clients, formatRate),
  numberField("λ", ({ fit }) => fit?.lambda, formatRate, "Images per second of one client"),
  numberField(
    "σ",
    ({ fit }) => fit?.sigma,
    (value) => value.toPrecision(2),
    "Contention: serial fraction",
  ),
  numberField(
    "κ",
    ({ fit }) => fit?.kappa,
    (value) => (value === 0 ? "0" : value.toExponential(1)),
    "Coherency cost between clients",
  ),
  numberField(
    "residual",
    ({ fit }) => fit?.residual,
    formatPercent,
    "Root mean square of the relative difference",
    ({ fit }) => ((fit?.residual ?? 0) > 0.15 ? { tone: "care" } : {}),
  ),
];

/** Throughput by clients with the fitted law, and latency by throughput. */
function concurrencyFigures(lines: readonly ConcurrencyLine[]): readonly Figure[] {
  return byEnvironment(lines).flatMap(({ suffix, own }) => {
    const marks = doubtMarks(own.flatMap(({ loadPoints }) => loadPoints));
    return [
      ...saturationFigure(own, suffix, marks),
      ...lineFigure(
        `Latency by throughput${suffix}`,
        "Each line runs from few to many clients. Where it turns upwards, more clients only add latency. Down and to the right is better.",
        {
          description:
            "Latency (p95) by images per second, one line for each endpoint, from few to many clients",
          x: { label: "images/s", kind: "linear", format: formatCount },
          y: { ...milliseconds, label: "p95, ms" },
          lines: own.map((line) => latencyLine(line, ({ imagesPerSecond }) => imagesPerSecond)),
        },
        marks,
      ),
    ];
  });
}

function saturationFigure(
  lines: readonly ConcurrencyLine[],
  suffix: string,
  marks: readonly Swatch[],
): readonly Figure[] {
  const growth = lines.map((line): PlotLine => {
    const { saturation } = line;
    return {
      name: line.endpoint,
      style: endpointStyle(line.endpoint),
      points: line.loadPoints.map((point) => ({
        x: clientsOf(point) ?? 1,
        y: point.imagesPerSecond,
        title: titleOf(line.endpoint, point),
        ...doubtOf(point),
        ring: saturation?.reached === true && saturation.sufficient.clients === clientsOf(point),
      })),
      ...(line.fit === undefined ? {} : { curve: curveOf(line.fit, line.points) }),
    };
  });
  const hasRing = growth.some(({ points }) => points.some(({ ring }) => ring));
  return lineFigure(
    `Throughput by concurrency${suffix}`,
    lines.some(({ fit }) => fit !== undefined)
      ? "Marks are measured; lines are the fitted Universal Scalability Law."
      : "A fit requires valid load points with at least five numbers of clients.",
    {
      description: "Images per second by number of clients, with the fitted scalability law",
      x: { label: "clients", kind: "log", format: formatCount },
      y: { label: "images/s", kind: "linear", format: formatCount },
      lines: growth,
    },
    [...(hasRing ? [ringSwatch] : []), ...marks],
  );
}

const curveSteps = 60;

function curveOf(fit: UslFit, points: readonly Point[]): readonly (readonly [number, number])[] {
  const clients = points.map((point) => point.clients);
  const [from, to] = [Math.min(...clients), Math.max(...clients)];
  return Array.from({ length: curveSteps + 1 }, (_, i) => {
    const n = from * (to / from) ** (i / curveSteps);
    return [n, uslThroughput(fit, n)] as const;
  });
}
