import { expect, test } from "vitest";
import { type AgreementRow, agreeTable, disagreement, medianRatio } from "./agree.ts";

const round = (requestsPerSecond: number) => ({ requestsPerSecond, p50Ms: 10, p95Ms: 20 });
const row: AgreementRow = {
  endpoint: "onnx-http",
  baseline: "perf_analyzer",
  // the machine was slow in the second round, for both
  clipstackRounds: [round(100), round(50), round(98)],
  baselineRounds: [round(100), round(49), round(100)],
};

test("the median ratio compares figures within a round, so that a slow round has no effect", () => {
  expect(medianRatio(row, "requestsPerSecond")).toBe(1);
  expect(
    medianRatio({ ...row, baselineRounds: row.baselineRounds.toReversed() }, "requestsPerSecond"),
  ).toBe(1);
});

test("the disagreement is the maximum deviation of any figure in either direction", () => {
  expect(disagreement([row])).toBe(0);
  const slower = row.clipstackRounds.map((figures) => ({ ...figures, p95Ms: 19 }));
  expect(disagreement([row, { ...row, clipstackRounds: slower }])).toBeCloseTo(0.05);
});

test("the table lists every round of every figure", () => {
  expect(agreeTable([row])).toContain(
    "| onnx-http | requests/s | 98.00 (100.00, 50.00, 98.00) | perf_analyzer: 100.00 (100.00, 49.00, 100.00) | 1.000 |",
  );
});
