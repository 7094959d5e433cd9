import { afterAll, beforeAll, expect, test } from "vitest";
import { toWire } from "../client/triton/wire.ts";
import { exposedDifferences } from "../contract/metrics/test-exposition.ts";
import { tritonMetrics, tritonModelMetricTable } from "../contract/metrics/triton-metrics.ts";
import { imageTowerOf, normalisedImage } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { elementCount } from "../contract/tensor.ts";
import { type ModelRegistry, openModelRegistry } from "./model-registry.ts";
import { type TestRepository, testRepository, tinyConfig } from "./test-repository.ts";
import { renderTritonMetrics } from "./triton-metrics.ts";

const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

let repository: TestRepository;
let registry: ModelRegistry;
beforeAll(async () => {
  repository = await testRepository({
    "a/config.pbtxt": tinyConfig({ name: "a" }),
    "b/config.pbtxt": tinyConfig({ name: "b" }),
  });
  registry = await openModelRegistry(repository.flags(), () => {});
});
afterAll(async () => {
  await registry.close();
  await repository.remove();
});

/** Value of a metric of one model, by its full name. */
async function metric(series: string): Promise<number> {
  const line = (await renderTritonMetrics(registry))
    .split("\n")
    .find((candidate) => candidate.startsWith(`${series} `));
  if (line === undefined) throw new Error(`no ${series}`);
  return Number(line.slice(series.length));
}

async function infer(model: string, items: number): Promise<void> {
  const data = new Float32Array(items * imageElements);
  const input = toWire({ name: "image", dataType: "FP32", shape: [items, 3, 224, 224], data });
  await registry
    .model(model)
    .infer({ id: "", parameters: {}, inputs: [input], outputs: [], binaryOutputs: true });
}

test("has Triton's metrics for each model, with help and type", async () => {
  const text = await renderTritonMetrics(registry);
  expect(exposedDifferences(text, tritonModelMetricTable)).toEqual([]);
  for (const model of ["a", "b"])
    await metric(`${tritonMetrics.success}{model="${model}",version="1"}`);
  for (const reason of ["REJECTED", "CANCELED", "BACKEND", "OTHER"]) {
    expect(
      await metric(`nv_inference_request_failure{model="a",version="1",reason="${reason}"}`),
    ).toBe(0);
  }
});

test("counts requests, items and executions per model", async () => {
  await infer("a", 3);
  await infer("a", 1);
  expect(await metric('nv_inference_request_success{model="a",version="1"}')).toBe(2);
  expect(await metric('nv_inference_count{model="a",version="1"}')).toBe(4);
  expect(await metric('nv_inference_exec_count{model="a",version="1"}')).toBe(2);
  expect(await metric('nv_inference_request_success{model="b",version="1"}')).toBe(0);
});

test("the durations of the steps add up to at most the request duration", async () => {
  await infer("b", 2);
  const us = (part: string) => metric(`nv_inference_${part}_duration_us{model="b",version="1"}`);
  const names = ["queue", "compute_input", "compute_infer", "compute_output"];
  const parts = await Promise.all(names.map(us));
  expect(await us("compute_infer")).toBeGreaterThan(0);
  expect(parts.reduce((sum, part) => sum + part)).toBeLessThanOrEqual(await us("request"));
});
