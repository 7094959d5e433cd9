import {
  type DataTable,
  type Field,
  numberField,
  type Section,
  tableOf,
} from "../../report/document/document.ts";
import {
  counted,
  formatCount,
  formatPercent,
  formatRate,
} from "../../report/document/number-format.ts";
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
} from "../stats/usl.ts";
import { concurrencyFigures } from "./figures.ts";
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
  /** Whether enough numbers of clients were measured, all of them validly, to judge saturation. */
  readonly isComplete: boolean;
}

interface SaturatedLine {
  readonly line: ConcurrencyLine;
  /** Absent unless the line is complete. */
  readonly saturation: ReturnType<typeof saturationOf>;
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
    const fitted = isComplete
      ? { fit: fitUsl(points), peak: uslPeak(pointsByRound(measured)) }
      : undefined;
    return [{ ...series, loadPoints: measured, points, isComplete, ...fitted }];
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
  const saturated = lines.map((line) => ({
    line,
    saturation: line.isComplete ? saturationOf(line.points) : undefined,
  }));
  const answer = saturated.every(({ saturation }) => saturation === undefined)
    ? [
        `Saturation is not judged: that requires at least ${uslMinimumPoints} numbers of clients, all of them valid.`,
      ]
    : saturated.map(saturationText);
  return {
    id: "concurrency",
    title: "Concurrency and saturation",
    answer,
    figures: concurrencyFigures(lines),
    tables: [
      saturationTable(saturated),
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
  };
}

function saturationText({ line: { name, loadPoints, points }, saturation }: SaturatedLine): string {
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

interface SaturationRow {
  readonly name: string;
  readonly fit?: UslFit;
  readonly peak?: UslPeak;
  readonly saturation: ReturnType<typeof saturationOf>;
  /** Whether the fitted peak is beyond the measured numbers of clients. */
  readonly isExtrapolated: boolean;
}

function saturationTable(lines: readonly SaturatedLine[]): DataTable {
  const rows = lines.map(({ line: { name, fit, peak, points }, saturation }): SaturationRow => {
    const largest = Math.max(...points.map(({ clients }) => clients));
    const isExtrapolated = (fit?.peak?.clients ?? largest + 1) > largest;
    return { name, fit, peak, saturation, isExtrapolated };
  });
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
  read: (row: SaturationRow) => Interval | undefined,
  format: (value: number) => string,
): Field<SaturationRow> {
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

function withoutInterval({ peak }: SaturationRow): string {
  return peak === undefined
    ? "fewer than two rounds"
    : `${peak.bounded} of ${counted(peak.rounds, "round")} have a maximum or an asymptote`;
}

const fitFields: readonly Field<SaturationRow>[] = [
  numberField(
    "fitted peak images/s",
    ({ fit }) => fit?.peak?.throughput ?? fit?.ceiling,
    formatRate,
    undefined,
    ({ isExtrapolated }) =>
      isExtrapolated ? { tone: "quiet", title: "beyond the measured range" } : {},
  ),
  intervalField("95 %", ({ peak }) => peak?.throughput, formatRate),
  numberField(
    "clients at peak",
    ({ fit }) => fit?.peak?.clients,
    formatCount,
    undefined,
    ({ isExtrapolated }) => (isExtrapolated ? { tone: "quiet" } : {}),
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
