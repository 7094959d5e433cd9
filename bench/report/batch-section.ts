import {
  type DataTable,
  type Field,
  numberCell,
  numberField,
  type Section,
  type TableCell,
  tableOf,
} from "../../report/document/document.ts";
import {
  counted,
  formatCount,
  formatMs,
  formatRate,
  formatRatio,
} from "../../report/document/number-format.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { batchFigures } from "./figures.ts";
import { batchPoints } from "./load-point-grid.ts";
import { latencyFields, metricField, nameField, trustField } from "./load-point-table.ts";
import {
  clientsOf,
  isUnmodified,
  preferTrusted,
  ratioText,
  reliabilityIssues,
  type Series,
  seriesOf,
  trustOf,
} from "./load-points.ts";
import { studyNotes } from "./study-section.ts";

export function batchSection(record: BenchRecord): Section | undefined {
  const lines = seriesOf(record.loadPoints.filter(isUnmodified)).flatMap((series) => {
    const loadPoints = batchPoints(series.loadPoints).filter(
      ({ latencyMs }) => latencyMs !== undefined,
    );
    return loadPoints.length < 2 ? [] : [{ ...series, loadPoints }];
  });
  if (lines.length === 0) return undefined;
  const clients = counted(clientsOf(lines[0]!.loadPoints[0]!) ?? 1, "client");
  const isUnreliable = lines.some(({ loadPoints }) =>
    loadPoints.some((point) => trustOf(point) !== "good"),
  );
  return {
    id: "batch",
    title: "Batch size",
    answer: largestGain(lines),
    figures: batchFigures(lines),
    tables: [
      pivot(`p50 by batch size, ms, ${clients}`, lines, (point) =>
        numberCell(point.latencyMs?.p50, formatMs),
      ),
      pivot(`Images per second by batch size, ${clients}`, lines, (point) =>
        numberCell(point.imagesPerSecond, formatRate),
      ),
      referenceTable(`Latency and throughput by batch size, ${clients}`, lines),
    ],
    notes: [
      ...(isUnreliable ? ["Values marked ~ (unstable) or ✗ (invalid) are unreliable."] : []),
      ...studyNotes(record, "batch"),
    ],
  };
}

/** Endpoint whose throughput increases most with the batch size, as a sentence. */
function largestGain(lines: readonly Series[]): readonly string[] {
  const gains = lines.flatMap(({ name, loadPoints }) => {
    const trusted = preferTrusted(loadPoints);
    const [small, large] = [trusted[0], trusted.at(-1)];
    if (small === undefined || large === undefined || small === large) return [];
    const throughput = large.imagesPerSecond / small.imagesPerSecond;
    const latency = (large.latencyMs?.p50 ?? 0) / (small.latencyMs?.p50 ?? 1);
    return [{ name, small, large, throughput, latency }];
  });
  return gains
    .sort((a, b) => b.throughput - a.throughput)
    .slice(0, 1)
    .map(
      ({ name, small, large, throughput, latency }) =>
        `\`${name}\` gains most: ${counted(large.imagesPerRequest, "image")} per request instead of ${small.imagesPerRequest} give ${formatRatio(throughput)} the throughput at ${ratioText(latency, small, large)} the latency.`,
    );
}

function referenceTable(caption: string, lines: readonly Series[]): DataTable {
  const rows = lines.flatMap(({ name, loadPoints }) => {
    const smallest = loadPoints[0]?.imagesPerSecond ?? 1;
    return loadPoints.map((point) => ({ name, point, smallest }));
  });
  return {
    isReference: true,
    ...tableOf(caption, rows, [
      nameField,
      numberField("batch", ({ point }) => point.imagesPerRequest, formatCount),
      ...latencyFields,
      metricField("throughput"),
      numberField(
        "ms per image",
        ({ point }) => (point.latencyMs?.p50 ?? 0) / point.imagesPerRequest,
        formatMs,
      ),
      numberField(
        "ratio to smallest",
        ({ point, smallest }) => point.imagesPerSecond / smallest,
        formatRatio,
        "Throughput divided by that of the smallest batch",
      ),
      trustField,
    ]),
  };
}

function pivot(
  caption: string,
  lines: readonly Series[],
  cellOf: (point: LoadPoint) => TableCell,
): DataTable {
  const sizes = [
    ...new Set(
      lines.flatMap(({ loadPoints }) => loadPoints.map(({ imagesPerRequest }) => imagesPerRequest)),
    ),
  ].sort((a, b) => a - b);
  return tableOf(caption, lines, [
    nameField,
    ...sizes.map(
      (size): Field<Series> => ({
        label: counted(size, "image"),
        kind: "number",
        cell: ({ loadPoints }) => {
          const point = loadPoints.find(({ imagesPerRequest }) => imagesPerRequest === size);
          if (point === undefined) return numberCell(undefined, String);
          const cell = cellOf(point);
          const trust = trustOf(point);
          if (trust === "good") return cell;
          const invalid = trust === "invalid" || trust === "empty";
          return {
            ...cell,
            text: `${cell.text} ${invalid ? "✗" : "~"}`,
            tone: invalid ? "bad" : "care",
            title: reliabilityIssues(point).join(" "),
          };
        },
      }),
    ),
  ]);
}
