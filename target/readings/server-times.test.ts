import { expect, test } from "vitest";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { parseMetrics } from "./prometheus.ts";
import { type ServerCounters, serverTimes } from "./server-times.ts";

const onnx = { endpoint: "onnx-http", model: "openclip_vit_b32", spec: openclipVitB32 } as const;
const embed = { endpoint: "embed-http", model: "openclip_vit_b32", spec: openclipVitB32 } as const;

function counters(
  pages: Readonly<Record<string, { readonly role: "embed" | "triton"; readonly page: string }>>,
): ServerCounters {
  return new Map(
    Object.entries(pages).map(([name, { role, page }]) => [
      name,
      { role, metrics: parseMetrics(page) },
    ]),
  );
}

/** Metrics page of a Triton server after requests of `batch` images, `perExecution` requests per execution. */
function tritonPage(
  requests: number,
  batch = 1,
  perExecution = 1,
  model: string = onnx.model,
): string {
  const of = `{model="${model}",version="1"}`;
  return [
    `nv_inference_request_success${of} ${requests}`,
    `nv_inference_count${of} ${requests * batch}`,
    `nv_inference_exec_count${of} ${requests / perExecution}`,
    `nv_inference_request_duration_us${of} ${requests * 9_000}`,
    `nv_inference_queue_duration_us${of} ${requests * 3_000}`,
    `nv_inference_compute_input_duration_us${of} ${requests * 1_000}`,
    `nv_inference_compute_infer_duration_us${of} ${requests * 4_000}`,
    `nv_inference_compute_output_duration_us${of} ${requests * 500}`,
  ].join("\n");
}

const triton = (page: string) => ({ role: "triton", page }) as const;

test("the means per request are computed from two readings of Triton's counters", () => {
  const before = counters({ a: triton(tritonPage(100, 8, 2)) });
  const after = counters({ a: triton(tritonPage(140, 8, 2)) });
  expect(serverTimes(before, after, onnx, "fp32")).toEqual({
    source: "triton",
    requests: 40,
    executions: 20,
    averageBatch: 16,
    requestMs: 9,
    decodeMs: undefined,
    queueMs: 3,
    inputMs: 1,
    inferMs: 4,
    outputMs: 0.5,
  });
});

test("the counters of several processes are summed", () => {
  const before = counters({ a: triton(tritonPage(0)), b: triton(tritonPage(10)) });
  const after = counters({ a: triton(tritonPage(30)), b: triton(tritonPage(20)) });
  expect(serverTimes(before, after, onnx, "fp32")).toMatchObject({
    requests: 40,
    executions: 40,
    requestMs: 9,
  });
});

test("other models of the same Triton server are ignored", () => {
  const page = (requests: number) =>
    `${tritonPage(10)}\n${tritonPage(requests, 1, 1, "openclip_vit_b32_trt")}`;
  const [before, after] = [counters({ a: triton(page(0)) }), counters({ a: triton(page(50)) })];
  expect(serverTimes(before, after, onnx, "fp32")).toBeUndefined();
});

test("decoding of an ensemble is the time of its first model, the other times are those of its second", () => {
  const page = (requests: number) =>
    [
      `nv_inference_request_success{model="openclip_vit_b32_jpeg"} ${requests}`,
      `nv_inference_request_duration_us{model="openclip_vit_b32_jpeg"} ${requests * 20_000}`,
      `nv_inference_request_duration_us{model="openclip_vit_b32_preprocess"} ${requests * 11_000}`,
      tritonPage(requests, 1, 1, "openclip_vit_b32_u8"),
    ].join("\n");
  const [before, after] = [counters({ a: triton(page(5)) }), counters({ a: triton(page(15)) })];
  expect(serverTimes(before, after, onnx, "jpeg")).toMatchObject({
    requests: 10,
    requestMs: 20,
    decodeMs: 11,
    queueMs: 3,
    inferMs: 4,
    averageBatch: 1,
  });
});

test("undefined if a process has restarted", () => {
  const before = counters({ a: triton(tritonPage(100)), b: triton(tritonPage(10)) });
  const after = counters({ a: triton(tritonPage(20)), b: triton(tritonPage(300)) });
  expect(serverTimes(before, after, onnx, "fp32")).toBeUndefined();
});

/** Metrics page of an embed server after requests of `batch` images, one execution each. */
function embedPage(requests: number, batch: number): string {
  const histogram = (name: string, count: number, sum: number, labels = "") =>
    `clipstack_embed_${name}_sum${labels} ${sum}\nclipstack_embed_${name}_count${labels} ${count}`;
  return [
    histogram("request_duration_seconds", requests, requests * 0.05, '{route="/embed"}'),
    histogram("request_duration_seconds", 1_000, 3, '{route="/metrics"}'),
    histogram("decode_duration_seconds", requests * batch, requests * batch * 0.006),
    histogram("queue_duration_seconds", requests, requests * 0.002),
    histogram("infer_duration_seconds", requests, requests * 0.03),
    histogram("overhead_duration_seconds", requests, requests * 0.004),
    histogram("batch_size", requests, requests * batch),
  ].join("\n");
}

test("the means are computed from an embed server's histograms, with decoding separate", () => {
  const page = (requests: number) => ({ role: "embed", page: embedPage(requests, 1) }) as const;
  const times = serverTimes(counters({ a: page(3) }), counters({ a: page(13) }), embed, "jpeg");
  expect(times).toMatchObject({ source: "embed", requests: 10, executions: 10, averageBatch: 1 });
  expect(times?.requestMs).toBeCloseTo(50, 6);
  expect(times?.decodeMs).toBeCloseTo(6, 6);
  expect(times?.queueMs).toBeCloseTo(2, 6);
  expect(times?.inferMs).toBeCloseTo(30, 6);
});

test("the decode time of parallel decoding is limited by the request time", () => {
  const page = (requests: number) => ({ role: "embed", page: embedPage(requests, 8) }) as const;
  const times = serverTimes(counters({ a: page(0) }), counters({ a: page(10) }), embed, "jpeg");
  // 8 × 6 ms of work, in 50 − 4 − 2 − 30 ms
  expect(times?.decodeMs).toBeCloseTo(14, 6);
  expect(times?.averageBatch).toBe(8);
});

test("the batches of a gateway are those of its Triton servers", () => {
  const all = (requests: number) =>
    counters({
      gateway: { role: "embed", page: embedPage(requests, 1) },
      one: triton(tritonPage(requests / 2, 1, 4)),
      two: triton(tritonPage(requests / 2, 1, 4)),
    });
  expect(serverTimes(all(0), all(80), embed, "jpeg")).toMatchObject({
    source: "embed",
    requests: 80,
    executions: 20,
    averageBatch: 4,
  });
});
