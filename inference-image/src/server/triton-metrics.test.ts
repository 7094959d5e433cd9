import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { imageElements } from "../contract/model-signature.ts";
import { metricsSettings } from "../contract/triton-flags.ts";
import { toWire } from "../triton/wire.ts";
import { type ModelRegistry, openModelRegistry } from "./model-registry.ts";
import { type TestRepository, testRepository, tinyConfig } from "./test-repository.ts";
import { renderTritonMetrics } from "./triton-metrics.ts";

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

/** Value of a metric of one model, by its whole name. */
function metric(series: string): number {
  const line = renderTritonMetrics(registry)
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

test("has every metric that Triton has for a model, for each model, each with help and type", () => {
  const text = renderTritonMetrics(registry);
  for (const name of [
    "nv_inference_request_success",
    "nv_inference_count",
    "nv_inference_exec_count",
    "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us",
    "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_compute_output_duration_us",
    "nv_inference_pending_request_count",
  ]) {
    expect(text).toMatch(new RegExp(`^# HELP ${name} \\S`, "m"));
    expect(text).toMatch(new RegExp(`^# TYPE ${name} (counter|gauge)$`, "m"));
    for (const model of ["a", "b"]) metric(`${name}{model="${model}",version="1"}`);
  }
  for (const reason of ["REJECTED", "CANCELED", "BACKEND", "OTHER"]) {
    expect(metric(`nv_inference_request_failure{model="a",version="1",reason="${reason}"}`)).toBe(
      0,
    );
  }
});

test("counts requests, items and executions of the model that ran", async () => {
  await infer("a", 3);
  await infer("a", 1);
  expect(metric('nv_inference_request_success{model="a",version="1"}')).toBe(2);
  expect(metric('nv_inference_count{model="a",version="1"}')).toBe(4);
  expect(metric('nv_inference_exec_count{model="a",version="1"}')).toBe(2);
  expect(metric('nv_inference_request_success{model="b",version="1"}')).toBe(0);
});

test("the parts of a request's time add up to no more than the whole", async () => {
  await infer("b", 2);
  const us = (part: string) => metric(`nv_inference_${part}_duration_us{model="b",version="1"}`);
  const parts = ["queue", "compute_input", "compute_infer", "compute_output"].map(us);
  expect(us("compute_infer")).toBeGreaterThan(0);
  expect(parts.reduce((sum, part) => sum + part)).toBeLessThanOrEqual(us("request"));
});

describe("--metrics-config", () => {
  const textOf = (...values: readonly string[]) =>
    renderTritonMetrics(registry, metricsSettings(values));

  test("without it there are counters, and neither summaries nor histograms", () => {
    expect(textOf()).not.toMatch(/summary|histogram/);
    expect(textOf()).toContain("nv_inference_queue_duration_us");
  });

  test("summary_latencies=true adds the quantiles of each part of a request's time", async () => {
    await infer("b", 1);
    const text = textOf("summary_latencies=true");
    for (const part of ["request", "queue", "compute_input", "compute_infer", "compute_output"]) {
      const name = `nv_inference_${part}_summary_us`;
      expect(text).toMatch(new RegExp(`^# TYPE ${name} summary$`, "m"));
      for (const quantile of [0.5, 0.9, 0.95, 0.99, 0.999]) {
        const series = `${name}{model="b",version="1",quantile="${quantile}"}`;
        expect(text).toMatch(new RegExp(`^${series.replaceAll(/[{}"]/g, "\\$&")} \\d+$`, "m"));
      }
      const counted = metric('nv_inference_request_success{model="b",version="1"}');
      expect(text).toContain(`${name}_count{model="b",version="1"} ${counted}\n`);
    }
    const sum = /nv_inference_request_summary_us_sum\{model="b",version="1"\} (\d+)/.exec(
      text,
    )?.[1];
    const total = metric('nv_inference_request_duration_us{model="b",version="1"}');
    expect(Math.abs(Number(sum) - total)).toBeLessThan(2);
  });

  test("summary_quantiles says which", () => {
    const text = textOf("summary_latencies=true", "summary_quantiles=0.25:0.05,0.75:0.01");
    const quantiles = [...text.matchAll(/queue_summary_us\{model="a".*quantile="(.*?)"/g)];
    expect(quantiles.map(([, quantile]) => quantile)).toEqual(["0.25", "0.75"]);
  });

  test("histogram_latencies=true adds the time to the first response", () => {
    const name = "nv_inference_first_response_histogram_ms";
    const labels = 'model="b",version="1"';
    const text = textOf("histogram_latencies=true");
    const count = metric(`nv_inference_request_success{${labels}}`);
    expect(text).toContain(`# TYPE ${name} histogram\n`);
    for (const bound of ["100", "500", "2000", "5000"]) {
      expect(text).toContain(`${name}_bucket{${labels},le="${bound}"} `);
    }
    expect(text).toContain(`${name}_bucket{${labels},le="+Inf"} ${count}\n`);
    expect(text).toContain(`${name}_count{${labels}} ${count}\n`);
  });

  test("counter_latencies=false leaves out the cumulative durations only", () => {
    const text = textOf("counter_latencies=false");
    expect(text).not.toContain("_duration_us");
    expect(text).toContain("nv_inference_exec_count");
  });
});
