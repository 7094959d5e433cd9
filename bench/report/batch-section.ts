import {
  type DataTable,
  newSection,
  numberField,
  type Section,
  tableOf,
} from "../../report/document/document.ts";
import {
  counted,
  formatCount,
  formatMs,
  formatRatio,
} from "../../report/document/number-format.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import { batchFigures } from "./figures.ts";
import { batchPoints } from "./load-point-grid.ts";
import { latencyFields, metricField, nameField, trustField } from "./load-point-table.ts";
import {
  clientsOf,
  isUnmodified,
  preferTrusted,
  ratioText,
  type Series,
  seriesOf,
} from "./load-points.ts";
import { studyNotes } from "./study-section.ts";

export function batchSection(record: BenchRecord): Section | undefined {
  const series = seriesOf(record.loadPoints.filter(isUnmodified)).flatMap((all) => {
    const loadPoints = batchPoints(all.loadPoints).filter(
      ({ latencyMs }) => latencyMs !== undefined,
    );
    return loadPoints.length < 2 ? [] : [{ ...all, loadPoints }];
  });
  if (series.length === 0) return undefined;
  const clients = counted(clientsOf(series[0]!.loadPoints[0]!) ?? 1, "client");
  return newSection("batch", "Batch size", {
    answer: largestGainSentence(series),
    figures: batchFigures(series),
    tables: [batchTable(`Latency and throughput by batch size, ${clients}`, series)],
    notes: studyNotes(record, "batch"),
  });
}

/**
 * Returns one sentence that names the endpoint whose throughput increases most with the batch size;
 * empty if no endpoint has two batch sizes.
 */
function largestGainSentence(series: readonly Series[]): readonly string[] {
  const gains = series.flatMap(({ name, loadPoints }) => {
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

function batchTable(caption: string, series: readonly Series[]): DataTable {
  const rows = series.flatMap(({ name, loadPoints }) => {
    const smallest = loadPoints[0]?.imagesPerSecond ?? 1;
    return loadPoints.map((point) => ({ name, point, smallest }));
  });
  return tableOf(caption, rows, [
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
  ]);
}
