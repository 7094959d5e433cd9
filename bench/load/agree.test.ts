import { expect, test } from "vitest";
import { type AgreeRow, agreeTable, compareWithPeers, disagreement, ratioOf } from "./agree.ts";

const round = (requestsPerSecond: number) => ({ requestsPerSecond, p50Ms: 10, p95Ms: 20 });
const row: AgreeRow = {
  path: "onnx-http",
  peer: "perf_analyzer",
  // the machine was slow in the second round, for both
  ours: [round(100), round(50), round(98)],
  theirs: [round(100), round(49), round(100)],
};

test("rounds are compared one by one, so that a slow one does no harm", () => {
  expect(ratioOf(row, "requestsPerSecond")).toBe(1);
  expect(ratioOf({ ...row, theirs: row.theirs.toReversed() }, "requestsPerSecond")).toBe(1);
});

test("the disagreement is that of the figure that differs most, in either direction", () => {
  expect(disagreement([row])).toBe(0);
  const slower = row.ours.map((one) => ({ ...one, p95Ms: 19 }));
  expect(disagreement([row, { ...row, ours: slower }])).toBeCloseTo(0.05);
});

test("the table has every round of every figure", () => {
  expect(agreeTable([row])).toContain(
    "| onnx-http | requests/s | 98.00 (100.00, 50.00, 98.00) | perf_analyzer: 100.00 (100.00, 49.00, 100.00) | 1.000 |",
  );
});

test("an address without a program to compare with, and no address at all, are refused", async () => {
  const compare = (targets: { http?: string; grpc?: string; embed?: string }, programs = {}) =>
    compareWithPeers(
      { ...targets, model: "any" },
      {
        ...programs,
        image: { bytes: Buffer.alloc(0), contentType: "image/jpeg", tensor: new Float32Array() },
        rounds: 1,
        seconds: 1,
        concurrency: 1,
        signal: new AbortController().signal,
        say: () => {},
      },
    );
  const url = "http://127.0.0.1:9";
  await expect(compare({ http: url }, { hey: "hey" })).rejects.toThrow(
    `--http ${url}: give --perf-analyzer to compare with`,
  );
  await expect(compare({ embed: url }, { perfAnalyzer: "perf_analyzer" })).rejects.toThrow(
    `--embed ${url}: give --hey to compare with`,
  );
  await expect(compare({}, { hey: "hey" })).rejects.toThrow("nothing to compare: give an address");
});
