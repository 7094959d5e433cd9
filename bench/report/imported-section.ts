import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { numberField, type Section, tableOf, textField } from "./document.ts";
import { closedLoop, endpointOf, trustOf } from "./load-points.ts";
import { counted, formatCount, formatMs, formatRate, formatRatio } from "./number-format.ts";

type Row = BenchRecord["imported"][number]["rows"][number];

/** Figures of another program beside ours, where the label of its file says which load it was. */
export function importedSection(record: BenchRecord): Section | undefined {
  if (record.imported.length === 0) return undefined;
  const rows = record.imported.flatMap(({ rows: list }) =>
    list.map((row) => ({ row, ours: sameLoad(record.loadPoints, row) })),
  );
  const ratios = rows.flatMap(({ row, ours }) =>
    ours === undefined || trustOf(ours) !== "good" || row.inferencesPerSecond === 0
      ? []
      : [ours.imagesPerSecond / row.inferencesPerSecond],
  );
  const factor = Math.max(...ratios.map((ratio) => Math.max(ratio, 1 / ratio)));
  const off =
    factor > 1.5
      ? `a factor of up to ${factor.toFixed(2)}`
      : `at most ${((factor - 1) * 100).toFixed(1)} %`;
  return {
    id: "imported",
    title: "Beside perf_analyzer",
    answer: [
      ratios.length === 0
        ? "No load of this run is the same as one of these: label a file as `onnx-http b8` to put it beside ours."
        : `${counted(ratios.length, "load was", "loads were")} measured by both: throughput differs by ${off}.`,
    ],
    figures: [],
    tables: [
      tableOf("Measured by perf_analyzer, and by clipstack", rows, [
        textField("label", ({ row }) => row.label),
        numberField(
          "concurrency or rate",
          ({ row }) => row.concurrency ?? row.ratePerSecond,
          formatCount,
        ),
        numberField("images/s", ({ row }) => row.inferencesPerSecond, formatRate),
        numberField("ours", ({ ours }) => ours?.imagesPerSecond, formatRate),
        numberField(
          "ratio",
          ({ row, ours }) => ours && ours.imagesPerSecond / row.inferencesPerSecond,
          formatRatio,
        ),
        numberField("p50 ms", ({ row }) => row.p50Ms, formatMs),
        numberField("ours", ({ ours }) => ours?.latencyMs?.p50, formatMs),
        numberField(
          "ratio",
          ({ row: { p50Ms = Number.NaN }, ours }) => ours?.latencyMs && ours.latencyMs.p50 / p50Ms,
          formatRatio,
        ),
        numberField("p95 ms", ({ row }) => row.p95Ms, formatMs),
        numberField("ours", ({ ours }) => ours?.latencyMs?.p95, formatMs),
        numberField("queue ms", ({ row }) => row.queueMs, formatMs),
        numberField("model ms", ({ row }) => row.inferMs, formatMs),
      ]),
    ],
    notes: [
      `Read from ${record.imported.map(({ file }) => file).join(", ")}. Its figures are beside ours, and in no choice of this report.`,
    ],
  };
}

/** Our cell of the load that a label names: `onnx-http b8`, or an endpoint alone for one image per request. */
export function sameLoad(loadPoints: readonly LoadPoint[], row: Row): LoadPoint | undefined {
  const [endpoint = "", batch = "b1"] = row.label.split(" ");
  return closedLoop(loadPoints).find(
    (point) =>
      endpointOf(point) === endpoint &&
      `b${point.imagesPerRequest}` === batch &&
      point.load.kind === "closed loop" &&
      point.load.concurrency === row.concurrency,
  );
}
