import { expect, test } from "vitest";
import { metricSum, parseMetrics } from "./prometheus.ts";

const page = `# HELP nv_inference_count Number of inferences
# TYPE nv_inference_count counter
nv_inference_count{model="a",version="1"} 40
nv_inference_count{model="b",version="1"} 2.5e1
up 1
quoted{name="with \\"quotes\\", and {braces}"} +Inf
`;

test("a metric is summed over its labels", () => {
  expect(metricSum(parseMetrics(page), "nv_inference_count")).toBe(65);
});

test("a metric is selected by its labels", () => {
  expect(metricSum(parseMetrics(page), "nv_inference_count", { model: "b" })).toBe(25);
});

test("a missing metric is undefined, not 0", () => {
  expect(metricSum(parseMetrics(page), "nv_inference_exec_count")).toBeUndefined();
  expect(metricSum(parseMetrics(page), "nv_inference_count", { model: "c" })).toBeUndefined();
});

test("labels may contain quotes and braces", () => {
  expect(parseMetrics(page).find(({ name }) => name === "quoted")?.labels.name).toBe(
    'with \\"quotes\\", and {braces}',
  );
});
