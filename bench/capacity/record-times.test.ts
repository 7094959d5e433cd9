import { expect, test } from "vitest";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { testBenchRecord } from "../report/test-bench-record.ts";
import { type Demand, predict, type System } from "./model.ts";
import { calibrateRecord, recordBackends, timesOfRecord } from "./record-times.ts";
import { publishedBytes, publishedModel, type ServiceTimes } from "./service-times.ts";

const truth: System = {
  link: { bandwidthMbps: 1e6, roundTripMs: 0, connections: "kept" },
  oneConnection: false,
  client: { betweenMs: 0, writeMsPerImage: 0 },
  overheadMs: 3,
  overheadMsPerImage: 0.2,
  ingestMsPerImage: 1.5,
  compute: { firstMs: 4, perImageMs: 0.6 },
  maxBatch: 32,
  instances: 1,
  gpus: 1,
  topology: "instance-group",
};

/** Load point with the figures that the model predicts for a service with known times. */
function measured(
  concurrency: number,
  imagesPerRequest: number,
  conditions: LoadPoint["conditions"] = {},
): LoadPoint {
  const demand: Demand = {
    concurrency,
    imagesPerRequest,
    bytesPerImage: 602_112,
    responseBytesPerImage: 2048,
  };
  const { imagesPerSecond, latencyMs } = predict(demand, {
    ...truth,
    link: { bandwidthMbps: 1e6, roundTripMs: 0, connections: "kept" },
  });
  const [like] = testBenchRecord().loadPoints.filter(
    ({ endpoint, payload, serialization }) =>
      endpoint === "onnx-http" && payload === "fp32" && serialization === "binary",
  ) as [LoadPoint];
  return {
    ...like,
    id: `onnx-http b${imagesPerRequest} c${concurrency}`,
    imagesPerRequest,
    requestBytes: 602_112 * imagesPerRequest,
    responseBytes: 2048 * imagesPerRequest,
    load: { kind: "closed loop", concurrency },
    conditions,
    imagesPerSecond,
    latencyMs: { mean: latencyMs, p50: 0, p90: 0, p95: 0, p99: 0, max: 0, p99Reliable: true },
    server: {
      source: "triton",
      requests: 1,
      inferMs: 4 + 0.6 * (imagesPerRequest - 1),
    },
    invalid: [],
  };
}

function record(loadPoints: readonly LoadPoint[]): BenchRecord {
  const made = testBenchRecord();
  return {
    ...made,
    subject: { ...made.subject, gpu: { name: "rtx-4090", count: 1 } },
    loadPoints: [...loadPoints],
  };
}

const loads = [
  measured(1, 1),
  measured(1, 8),
  measured(1, 32),
  measured(4, 1),
  measured(16, 1),
  measured(64, 1),
];

test("derives the times of a service from its loads and predicts the others", () => {
  const { endpoints, rows, excluded } = calibrateRecord(record(loads));
  expect(excluded).toEqual([]);
  expect(endpoints).toHaveLength(1);
  expect(endpoints[0]?.compute).toEqual({
    firstMs: expect.closeTo(4, 6),
    perImageMs: expect.closeTo(0.6, 6),
  });
  expect(endpoints[0]?.ingestMsPerImage).toBeCloseTo(1.5, 2);
  expect(endpoints[0]?.overheadMs).toBeCloseTo(3, 1);
  expect(rows.filter(({ role }) => role === "predicted")).toHaveLength(2);
  for (const { loadPoint, throughputError, latencyError } of rows) {
    expect(Math.abs(throughputError), loadPoint).toBeLessThan(0.01);
    expect(Math.abs(latencyError), loadPoint).toBeLessThan(0.01);
  }
});

test("excludes loads that do not measure the service, with the reason", () => {
  const open: LoadPoint = {
    ...measured(1, 1),
    id: "open",
    load: { kind: "open loop", arrivals: "poisson", ratePerSecond: 10, seed: 1 },
  };
  const invalid: LoadPoint = {
    ...measured(2, 1),
    id: "invalid",
    invalid: ["the client was the limit"],
  };
  const delayed: LoadPoint = {
    ...measured(2, 1),
    id: "delayed",
    conditions: { queueDelayUs: 5000 },
  };
  const { excluded } = calibrateRecord(record([...loads, open, invalid, delayed]));
  expect(excluded).toEqual([
    { load: "open", reason: "an open loop has no fixed number of clients" },
    { load: "invalid", reason: "invalid" },
    { load: "delayed", reason: "modified queue delay" },
  ]);
});

test("an endpoint without a load of one client calibrates nothing", () => {
  const { endpoints, rows, excluded } = calibrateRecord(record([measured(4, 1)]));
  expect([endpoints, rows]).toEqual([[], []]);
  expect(excluded[0]?.reason).toBe(
    "no valid load point of onnx-http with one client, which is required to calibrate it",
  );
});

test("calibrates from a full record of bench and its studies", () => {
  const { endpoints, rows } = calibrateRecord(testBenchRecord());
  expect(endpoints.length).toBeGreaterThanOrEqual(6);
  expect(rows.some(({ role }) => role === "predicted")).toBe(true);
  for (const row of rows) expect(Number.isFinite(row.throughputError), row.loadPoint).toBe(true);
});

const published: ServiceTimes = {
  model: publishedModel.name,
  bytes: publishedBytes,
  compute: () => ({ firstMs: 99, perImageMs: 99 }),
  measured: () => false,
  decodeMsPerImage: 77,
  decodeWorkers: 1,
  overheadMs: 88,
  overheadMsPerImage: 0,
  ingestMsPerImage: 66,
  jsonMsPerImage: 55,
  jsonBytesPerImage: 44,
};

/** The same load through the embed API, which is slower. */
function embedded(concurrency: number, imagesPerRequest: number): LoadPoint {
  const point = measured(concurrency, imagesPerRequest);
  return {
    ...point,
    id: `embed-http b${imagesPerRequest} c${concurrency}`,
    service: "embed",
    endpoint: "embed-http",
    payload: "jpeg",
    server: { source: "embed", requests: 1, inferMs: 90 * imagesPerRequest, decodeMs: 2 },
  };
}

test("each API keeps its own compute time, and a backend without measurements has none", () => {
  const made = record([...loads, embedded(1, 1), embedded(1, 8)]);
  const calibration = calibrateRecord(made);
  const times = timesOfRecord(made, calibration, "rtx-4090", published);
  expect(times.compute("rtx-4090", "onnxruntime").firstMs).toBeCloseTo(4, 6);
  expect(times.embed?.compute?.("rtx-4090", "onnxruntime").firstMs).toBeCloseTo(90, 6);
  expect(times.supports?.("rtx-4090", "tensorrt")).toBe(false);
  expect(times.embed?.supports?.("rtx-4090", "tensorrt")).toBe(false);
  expect(times.supports?.("t4", "tensorrt")).toBe(true);
  expect(recordBackends(calibration, "fp32")).toEqual(["onnxruntime"]);
  expect(recordBackends(calibration, "jpeg")).toEqual(["onnxruntime"]);
});

test("the compute time of the embed API is not used for Triton", () => {
  const made = record([embedded(1, 1), embedded(1, 8)]);
  const calibration = calibrateRecord(made);
  const times = timesOfRecord(made, calibration, "rtx-4090", published);
  expect(recordBackends(calibration, "fp32")).toEqual([]);
  expect(times.supports?.("rtx-4090", "onnxruntime")).toBe(false);
  expect(times.embed?.supports?.("rtx-4090", "onnxruntime")).toBe(true);
});

test.each([1, 8])("one batch size (%d) shows no gain of batches, and none is assumed", (images) => {
  const { endpoints, notes } = calibrateRecord(record([measured(1, images)]));
  const { firstMs = Number.NaN, perImageMs } = endpoints[0]?.compute ?? {};
  expect(perImageMs).toBe(firstMs);
  expect(firstMs * images).toBeCloseTo(4 + 0.6 * (images - 1), 6);
  expect(notes).toEqual([
    `single-gpu, onnx-http: one client sent only batch size ${images}; a batch is assumed to take as long as its images individually.`,
  ]);
});

test("a larger batch with the same duration does not yield a compute time of zero per image", () => {
  const quick = {
    ...measured(1, 8),
    server: { ...measured(1, 8).server, inferMs: 3.2 },
  } as LoadPoint;
  const { endpoints, notes } = calibrateRecord(record([measured(1, 1), quick]));
  expect(endpoints[0]?.compute).toEqual({
    firstMs: expect.closeTo(4, 6),
    perImageMs: expect.closeTo(0.4, 6),
  });
  expect(notes[0]).toContain("larger batches took no longer, which is noise");
});

test("calibrates with stable loads if there are any", () => {
  const stability = { ...measured(1, 1).stability, verdict: "drifting" } as const;
  const unstable = { ...measured(1, 1), id: "unstable", stability };
  const odd = { ...unstable, server: { ...unstable.server, inferMs: 40 } } as LoadPoint;
  const { endpoints, rows } = calibrateRecord(record([odd, ...loads]));
  expect(endpoints[0]?.compute.firstMs).toBeCloseTo(4, 6);
  expect(rows.find(({ loadPoint }) => loadPoint === "unstable")?.role).toBe("predicted");
});

test("the backend of an embed API given by address must be specified", () => {
  const made = record([embedded(1, 1)]);
  const calibration = calibrateRecord({ ...made, subject: { ...made.subject, environments: [] } });
  expect(recordBackends(calibration, "jpeg")).toEqual([]);
  expect(recordBackends(calibration, "jpeg", "onnxruntime")).toEqual(["onnxruntime"]);
});

test("predictions use the times of the record and published figures for the rest", () => {
  const made = record(loads);
  const times = timesOfRecord(made, calibrateRecord(made), "rtx-4090", published);
  expect(times.compute("rtx-4090", "onnxruntime").firstMs).toBeCloseTo(4, 6);
  expect(times.compute("t4", "onnxruntime").firstMs).toBe(99);
  expect(times.measured("rtx-4090", "onnxruntime")).toBe(true);
  expect(times.measured("t4", "onnxruntime")).toBe(false);
  expect(times.ingestMsPerImage).toBeCloseTo(1.5, 2);
  expect(times.decodeMsPerImage).toBe(77);
});
