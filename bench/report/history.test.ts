import { expect, test } from "vitest";
import { renderHtml } from "../../report/render/render-html.ts";
import { renderText } from "../../report/render/render-text.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { historyOf, type NamedRecord } from "./history.ts";
import { historyReport } from "./history-report.ts";
import { testBenchRecord, testLoadPoint } from "./test-bench-record.ts";

/** Record of a day of November with two endpoints, of which `onnx-http` is slower by a factor. */
function run(
  day: number,
  slower: number,
  subject: Partial<BenchRecord["subject"]> = {},
  changes: Partial<LoadPoint> = {},
): NamedRecord {
  const record = testBenchRecord({
    startedAt: `2026-11-${day}T10:30:00.000Z`,
    loadPoints: [
      testLoadPoint({ endpoint: "onnx-http", slower }, changes),
      testLoadPoint({ endpoint: "onnx-grpc" }),
    ],
    studies: [],
  });
  const commit = `${day}`.repeat(20);
  return {
    file: `${day}.json`,
    record: { ...record, subject: { ...record.subject, commit, ...subject } },
  };
}

/** Changes as `day metric from → to`. */
function changesIn(records: readonly NamedRecord[]): readonly string[] {
  return historyOf(records).flatMap(({ series }) =>
    series.flatMap(({ endpoint, metric, changes }) =>
      changes.map(
        ({ from, to, isBetter }) =>
          `${endpoint} ${metric}: ${from.run.file} → ${to.run.file} ${isBetter ? "better" : "worse"}`,
      ),
    ),
  );
}

test("finds what changed, when and in which direction, for each metric", () => {
  const records = [run(21, 1), run(22, 1), run(23, 1.4), run(24, 1.4), run(25, 1)];
  const found = changesIn(records).filter((text) => /throughput|p50/.test(text));
  expect(found).toEqual([
    "onnx-http throughput: 22.json → 23.json worse",
    "onnx-http throughput: 24.json → 25.json better",
    "onnx-http p50: 22.json → 23.json worse",
    "onnx-http p50: 24.json → 25.json better",
  ]);
});

test("records are ordered by time, not by name", () => {
  const [a, b, c] = [run(23, 1.4), run(21, 1), run(22, 1)];
  expect(changesIn([a, b, c])[0]).toBe("onnx-http throughput: 22.json → 23.json worse");
});

test("differences within the noise are no change", () => {
  expect(changesIn([run(21, 1), run(22, 1.004), run(23, 0.997)])).toEqual([]);
});

test("what compare tolerates between two runs is no change, although it is significant", () => {
  expect(changesIn([run(21, 1), run(22, 1.12)])).toEqual([]);
});

test("a drift in small steps is found, once it is beyond that", () => {
  const steps = [1, 1.08, 1.16, 1.24, 1.32, 1.4].map((slower, i) => run(21 + i, slower));
  const throughput = changesIn(steps).filter((text) => text.includes("throughput"));
  expect(throughput.length).toBeGreaterThan(0);
  expect(changesIn(steps.slice(0, 2))).toEqual([]);
});

test("records of another machine, model or environment are another subject", () => {
  const { machine, model } = run(21, 1).record.subject;
  const subjects = historyOf([
    run(21, 1),
    run(22, 2, { machine: { ...machine, cpu: "Other CPU" } }),
    run(23, 2, { model: { ...model, sha256: "ef".repeat(32) } }),
    run(24, 2, { target: "addresses" }),
    run(25, 1),
  ]);
  expect(subjects.map(({ runs }) => runs.map(({ file }) => file))).toEqual([
    ["21.json", "25.json"],
    ["22.json"],
    ["23.json"],
    ["24.json"],
  ]);
  expect(subjects.flatMap(({ series }) => series.flatMap(({ changes }) => changes))).toEqual([]);
});

test("unreliable load points are left out", () => {
  const invalid = run(22, 2, {}, { invalid: ["The load generator sent late."] });
  expect(changesIn([run(21, 1), invalid, run(23, 1)])).toEqual([]);
});

test("the report names the time, the commit with its changes, and the last run before", () => {
  const subjects = historyOf([run(21, 1), run(22, 1), run(23, 1.4, { dirty: true })]);
  const report = historyReport(subjects);
  expect(report.verdict).toMatch(/^\d significant changes over 3 records: \d worse, 0 better$/);
  const [row = []] = report.summary[0]?.tables[0]?.rows ?? [];
  expect(row.slice(0, 5).map(({ text }) => text)).toEqual([
    "2026-11-23 10:30",
    "232323232323 with changes",
    "onnx-http",
    "1 image per request, 1 client",
    "images/s",
  ]);
  expect(row.at(-2)).toMatchObject({ tone: "bad" });
  expect(row.at(-1)?.text).toBe("2026-11-22 10:30, 222222222222");
  expect(renderText(report)).toContain("First and last values");
});

test("the page plots throughput over time and rings each change", () => {
  const report = historyReport(historyOf([run(21, 1), run(22, 1), run(23, 1.4)]));
  const [figure] = report.sections[0]?.figures ?? [];
  expect(figure?.title).toBe("Throughput over time, 1 image per request, 1 client");
  const drawn = figure?.draw(1_200) ?? "";
  expect(drawn.match(/class="ring"/g)).toHaveLength(1);
  expect(drawn).toContain("2026-11-22 10:30");
  expect(renderHtml(report)).toContain("2026-11-22 10:30, 222222222222");
});

test("without two records of one subject nothing is compared", () => {
  const report = historyReport(historyOf([run(21, 1)]), [{ file: "a.json", reason: "no JSON" }]);
  expect(report).toMatchObject({
    verdict: "Nothing to compare over 1 record: no two have the same subject",
    tone: "care",
  });
  expect(renderText(report)).toContain("a.json: no JSON");
});
