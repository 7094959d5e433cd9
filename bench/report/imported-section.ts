import {
  newSection,
  numberField,
  type Section,
  tableOf,
  textField,
} from "../../report/document/document.ts";
import {
  counted,
  formatCount,
  formatMs,
  formatRate,
  formatRatio,
} from "../../report/document/number-format.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { closedLoop, endpointOf, trustOf } from "./load-points.ts";

type Row = BenchRecord["imported"][number]["rows"][number];

/** Figures of other programs next to the load points that their labels name. */
export function importedSection(record: BenchRecord): Section | undefined {
  if (record.imported.length === 0) return undefined;
  const rows = record.imported.flatMap(({ rows: list }) =>
    list.map((row) => ({ row, loadPoint: sameLoad(record.loadPoints, row) })),
  );
  const ratios = rows.flatMap(({ row, loadPoint }) =>
    loadPoint === undefined || trustOf(loadPoint) !== "good" || row.inferencesPerSecond === 0
      ? []
      : [loadPoint.imagesPerSecond / row.inferencesPerSecond],
  );
  const factor = Math.max(...ratios.map((ratio) => Math.max(ratio, 1 / ratio)));
  const off =
    factor > 1.5
      ? `a factor of up to ${factor.toFixed(2)}`
      : `at most ${((factor - 1) * 100).toFixed(1)} %`;
  const programs = [...new Set(record.imported.map(({ program }) => program))].join(", ");
  return newSection("imported", `Comparison with ${programs}`, {
    answer: [
      ratios.length === 0
        ? rows.some(({ loadPoint }) => loadPoint !== undefined)
          ? "The load points with these labels are not reliable, and throughput is not compared."
          : "No load point matches: label the file with a load, as in `onnx-http b8`, to compare."
        : `In ${counted(ratios.length, "common load point")}, throughput differs by ${off}.`,
    ],
    tables: [
      tableOf(`Figures of ${programs} and clipstack`, rows, [
        textField("label", ({ row }) => row.label),
        numberField(
          "concurrency or rate",
          ({ row }) => row.concurrency ?? row.ratePerSecond,
          formatCount,
        ),
        numberField("images/s", ({ row }) => row.inferencesPerSecond, formatRate),
        numberField(
          "clipstack images/s",
          ({ loadPoint }) => loadPoint?.imagesPerSecond,
          formatRate,
        ),
        numberField(
          "ratio",
          ({ row, loadPoint }) => loadPoint && loadPoint.imagesPerSecond / row.inferencesPerSecond,
          formatRatio,
        ),
        numberField("p50 ms", ({ row }) => row.p50Ms, formatMs),
        numberField("clipstack p50 ms", ({ loadPoint }) => loadPoint?.latencyMs?.p50, formatMs),
        numberField(
          "ratio",
          ({ row: { p50Ms = Number.NaN }, loadPoint }) =>
            loadPoint?.latencyMs && loadPoint.latencyMs.p50 / p50Ms,
          formatRatio,
        ),
        numberField("p95 ms", ({ row }) => row.p95Ms, formatMs),
        numberField("clipstack p95 ms", ({ loadPoint }) => loadPoint?.latencyMs?.p95, formatMs),
        numberField("queue ms", ({ row }) => row.queueMs, formatMs),
        numberField("model ms", ({ row }) => row.inferMs, formatMs),
      ]),
    ],
    notes: [
      `Read from ${record.imported.map(({ file }) => file).join(", ")}. These figures do not affect the recommendations.`,
    ],
  });
}

/** Load point named by a label: `onnx-http b8`, or `onnx-http` for one image per request. */
function sameLoad(loadPoints: readonly LoadPoint[], row: Row): LoadPoint | undefined {
  const [endpoint = "", batch = "b1"] = row.label.split(" ");
  return closedLoop(loadPoints).find(
    (point) =>
      endpointOf(point) === endpoint &&
      `b${point.imagesPerRequest}` === batch &&
      point.load.kind === "closed loop" &&
      point.load.concurrency === row.concurrency,
  );
}
