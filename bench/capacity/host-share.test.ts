import { expect, test } from "vitest";
import { capacityTable } from "./capacity-table.ts";
import { hostShareOf, predictScenario, type Scenario } from "./scenario.ts";
import { gatewayMs, publishedTimes } from "./service-times.ts";

const times = publishedTimes(10_000);
const perCore = capacityTable.parameters.ingestPerCore;

const scenario: Scenario = {
  device: { name: "a100-sxm4-80gb", usdPerHour: 1.5 },
  gpus: 4,
  topology: "instance-group",
  backend: "tensorrt",
  payload: "fp32",
  bandwidthMbps: 1e6,
  roundTripMs: 0.1,
  connections: "kept",
  concurrency: 64,
  imagesPerRequest: 1,
  clientMs: 0,
  jpegBytes: 10_000,
};

test("one Triton server ingests with all cores of the host, and one of several with its share", () => {
  const ingest = (change: Partial<Scenario>) => hostShareOf({ ...scenario, ...change }, times);
  expect(ingest({ cores: 1 }).ingestMsPerImage).toBeCloseTo(perCore.ms.httpFp32, 9);
  expect(ingest({ cores: 8 }).ingestMsPerImage).toBeCloseTo(
    perCore.ms.httpFp32 / 8 ** perCore.scaling,
    9,
  );
  expect(ingest({ cores: 8, topology: "per-gpu" }).ingestMsPerImage).toBeCloseTo(
    perCore.ms.httpFp32 / 2 ** perCore.scaling,
    9,
  );
  expect(ingest({}).ingestMsPerImage).toBe(ingest({ cores: 32 }).ingestMsPerImage);
});

test("ingest on more cores than were measured is marked", () => {
  const host = hostShareOf({ ...scenario, cores: 16 }, times);
  expect(host.measuredIngestMs).toBeGreaterThan(host.ingestMsPerImage);
  const small = hostShareOf({ ...scenario, cores: 2 }, times);
  expect(small.measuredIngestMs).toBe(small.ingestMsPerImage);
});

test("a limit of decoding on more cores than were measured comes with that of two cores", () => {
  const jpegBytes = 300_000;
  const photo = { ...scenario, payload: "jpeg", jpegBytes, gpus: 1, concurrency: 256 } as const;
  const photoTimes = publishedTimes(jpegBytes);
  const eight = predictScenario({ ...photo, cores: 8 }, photoTimes);
  expect(eight.bottleneck).toBe("decode");
  expect(eight.measuredLimit).toBeCloseTo(eight.limitImagesPerSecond / 4, 6);
  expect(predictScenario({ ...photo, cores: 2 }, photoTimes).measuredLimit).toBeUndefined();
});

test("decoding and ingest of JPEGs share the cores: both saturate at cores ÷ processor time per image", () => {
  const { decode, ingestMsPerImage } = hostShareOf(
    { ...scenario, payload: "jpeg", cores: 8 },
    times,
  );
  const decodeMs = gatewayMs(capacityTable.parameters, 10_000);
  const rate = 8_000 / (decodeMs + perCore.ms.grpcFp32);
  expect(1000 / (decode!.msPerImage / decode!.workers)).toBeCloseTo(rate, 6);
  // more than one core
  expect(1000 / ingestMsPerImage).toBeCloseTo(rate, -1);
});

test("eight GPUs with eight times the cores are not limited like one", () => {
  const limit = (gpus: number) =>
    predictScenario({ ...scenario, payload: "jpeg", gpus }, times).limitImagesPerSecond;
  expect(limit(8) / limit(1)).toBeGreaterThan(7);
});
