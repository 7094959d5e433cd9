import { expect, test } from "vitest";
import { parseJsonResult } from "./import-json.ts";
import { importedSection } from "./imported-section.ts";
import { testBenchRecord } from "./test-bench-record.ts";

/** Fields of `profile_export_aiperf.json` as AIPerf 0.13 writes them for `--endpoint-type embeddings --concurrency 4`. */
const aiperf = {
  schema_version: "1.4",
  aiperf_version: "0.13.0",
  request_throughput: { unit: "requests/sec", avg: 400 },
  request_latency: { unit: "ms", avg: 9.5, p1: 7, p50: 9, p90: 11, p95: 12, p99: 14, count: 400 },
  request_count: { unit: "requests", avg: 400 },
  input_config: {
    models: { items: [{ name: "openclip-vit-b32" }] },
    endpoint: { urls: ["http://127.0.0.1:8002"], type: "embeddings" },
    phases: [
      { name: "warmup", kind: "warmup", type: "concurrency", requests: 8, concurrency: 1 },
      { name: "profiling", kind: "profiling", type: "concurrency", requests: 400, concurrency: 4 },
    ],
  },
  was_cancelled: false,
};

/** Fields that `vllm bench serve --backend openai-embeddings --save-result` writes (vllm/benchmarks/serve.py). */
const vllm = {
  date: "20261128-120000",
  backend: "openai-embeddings",
  model_id: "openclip-vit-b32",
  num_prompts: 400,
  request_rate: "inf",
  burstiness: 1,
  max_concurrency: 4,
  duration: 1,
  completed: 400,
  total_input_tokens: 8000,
  request_throughput: 400,
  total_token_throughput: 8000,
  mean_e2el_ms: 9.5,
  median_e2el_ms: 9,
  std_e2el_ms: 1,
  p99_e2el_ms: 14,
};

const parse = (result: object, label?: string) =>
  parseJsonResult(JSON.stringify(result, null, 2), "runs/result.json", label);

test("reads AIPerf's throughput, percentiles and the concurrency of the profiled phase", () => {
  expect(parse(aiperf, "onnx-http b1")).toEqual({
    program: "AIPerf",
    file: "result.json",
    rows: [
      {
        ...{ label: "onnx-http b1", concurrency: 4, inferencesPerSecond: 400 },
        ...{ p50Ms: 9, p90Ms: 11, p95Ms: 12, p99Ms: 14 },
      },
    ],
  });
});

test("reads the concurrency and rate of older files of AIPerf, without a label", () => {
  const loadgen = { concurrency: 8, request_rate: 50 };
  const [row] = parse({ ...aiperf, input_config: { loadgen } }).rows;
  expect(row).toMatchObject({ label: "result", ratePerSecond: 50 });
  expect(row?.concurrency).toBeUndefined();
});

test("reads vllm bench, one result per line with --append-result", () => {
  const fast = { ...vllm, max_concurrency: null, request_rate: 50 };
  const text = `${JSON.stringify(vllm)}\n${JSON.stringify(fast)}`;
  expect(parseJsonResult(text, "result.json", "onnx-http b1")).toMatchObject({
    program: "vllm bench",
    rows: [
      { concurrency: 4, inferencesPerSecond: 400, p50Ms: 9, p99Ms: 14 },
      { ratePerSecond: 50, inferencesPerSecond: 400 },
    ],
  });
});

test("requests are converted to images with the batch size of the label", () => {
  expect(parse(aiperf, "onnx-http b8").rows[0]?.inferencesPerSecond).toBe(3_200);
  expect(parse(vllm, "onnx-http b8").rows[0]?.inferencesPerSecond).toBe(3_200);
  const counted = { ...vllm, input_sequence_throughput: 3_100 };
  expect(parse(counted, "onnx-http b8").rows[0]?.inferencesPerSecond).toBe(3_100);
});

test("results of both programs are compared with the load point that the label names", () => {
  const imported = [parse(aiperf, "onnx-http b1"), parse(vllm, "onnx-http b1")];
  const section = importedSection({ ...testBenchRecord(), imported })!;
  expect(section.title).toBe("Comparison with AIPerf, vllm bench");
  expect(section.answer[0]).toMatch(/^In 2 common load points, throughput differs by /);
});

test("a load point that is not reliable is shown and not compared", () => {
  const record = testBenchRecord();
  const loadPoints = record.loadPoints.map((point) => ({ ...point, invalid: ["busy generator"] }));
  const imported = [parse(aiperf, "onnx-http b1")];
  const section = importedSection({ ...record, loadPoints, imported })!;
  expect(section.answer[0]).toContain("The load points with these labels are not reliable");
});

test.each([
  ["[]", "must be profile_export_aiperf.json of AIPerf or a result of vllm bench serve"],
  ["{", "must be JSON"],
  ["{}", "must be profile_export_aiperf.json of AIPerf or a result of vllm bench serve"],
  [JSON.stringify({ ...vllm, request_throughput: -1 }), "request_throughput must be at least 0"],
  [JSON.stringify({ ...vllm, max_concurrency: 1.5 }), "max_concurrency must be a whole number"],
  [JSON.stringify({ ...aiperf, input_config: 1 }), "input_config must be"],
])("fails on %s with the file and the rule", (text, message) => {
  expect(() => parseJsonResult(text, "x.json")).toThrow(`x.json: ${message}`);
});
