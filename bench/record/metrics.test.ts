import { expect, test } from "vitest";
import { compareRecords } from "../report/compare.ts";
import { sectionsOf } from "../report/sections.ts";
import { testBenchRecord, testLoadPoint } from "../report/test-bench-record.ts";
import { comparedMetrics, metricNames, metricOf, metrics } from "./metrics.ts";

const gpus = [
  { id: "GPU-a", utilization: 0.5, powerWatts: 150.4 },
  { id: "GPU-b", utilization: 0.7, powerWatts: 199.2 },
];
const point = testLoadPoint({}, { gpu: { source: "nvidia-smi", gpus } });

test("GPU utilisation is the mean and GPU power the sum over the GPUs", () => {
  expect(metrics.gpuUtilization.read(point)).toBeCloseTo(0.6, 9);
  expect(metrics.gpuPower.read(point)).toBeCloseTo(349.6, 9);
  expect(metrics.gpuPower.format(349.6)).toBe("350");
});

test("a metric that was not measured has no value", () => {
  const bare = testLoadPoint({}, { gpu: undefined, server: undefined });
  expect(metrics.gpuPower.read(bare)).toBeUndefined();
  expect(metrics.gpuUtilization.read(bare)).toBeUndefined();
  expect(metrics.averageBatch.read(bare)).toBeUndefined();
});

test("a p99 from too few requests is not reliable", () => {
  const { latencyMs } = point;
  const few = testLoadPoint({}, { latencyMs: { ...latencyMs!, p99Reliable: false } });
  expect(metricOf("p99").caution?.(few)).toBe("from too few requests; close to the maximum");
  expect(metricOf("p99").caution?.(point)).toBeUndefined();
});

test("a comparison judges throughput and percentiles, in the order of the rows", () => {
  const record = testBenchRecord({ loadPoints: [point] });
  const [change] = compareRecords(record, record, { failOver: 0.1 }).loadPoints;
  expect(change?.changes.map(({ metric }) => metric)).toEqual(comparedMetrics);
  expect(comparedMetrics).toEqual(["throughput", "p50", "p95", "p99"]);
});

test("labels are unique", () => {
  expect(new Set(metricNames.map((name) => metricOf(name).label)).size).toBe(metricNames.length);
});

test("the table of time parts has the measured metrics of its groups", () => {
  const { tables } = sectionsOf(testBenchRecord()).find(({ id }) => id === "time")!;
  const labels = metricNames
    .map(metricOf)
    .filter(({ group, read }) => group !== "result" && testBenchRecord().loadPoints.some(read))
    .map(({ label }) => label);
  expect(labels).toContain("network ms");
  expect(tables[0]?.columns.slice(2).map(({ label }) => label)).toEqual(labels);
});
