import { expect, test } from "vitest";
import { type Choices, planJob } from "./plan.ts";
import { alternatives, predictScenario, ratesByClients, type Scenario } from "./scenario.ts";
import { publishedBytes, publishedModel, type ServiceTimes } from "./service-times.ts";

const times: ServiceTimes = {
  model: publishedModel.name,
  bytes: publishedBytes,
  compute: (device) => ({
    firstMs: device === "slow" ? 40 : 4,
    perImageMs: device === "slow" ? 20 : 0.5,
  }),
  measured: () => true,
  decodeMsPerImage: 5,
  decodeWorkers: 2,
  gatewayMsPerImage: 0,
  overheadMs: 5,
  ingestMsPerImage: 1,
  jsonMsPerImage: 50,
  jsonBytesPerImage: 3e6,
  maxBatch: 32,
  ingestPerCore: { ms: { httpFp32: 1, httpUint8: 1, grpcFp32: 1 }, scaling: 1, measuredCores: 2 },
};

/** No error: every interval is the prediction. */
const certain = { times: [times], factors: { throughput: [[1]], latency: [[1]] } };

const base = {
  backend: "tensorrt",
  bandwidthMbps: 1000,
  roundTripMs: 1,
  connections: "kept",
  imagesPerRequest: 1,
  clientMs: 0,
  jpegBytes: 10_000,
} as const;

const slow = { name: "slow", usdPerHour: 0.2 };
const fast = { name: "fast", usdPerHour: 2 };

const choices: Choices = {
  devices: [slow, fast],
  gpus: [1, 4],
  topologies: ["instance-group", "per-gpu"],
  payloads: ["jpeg", "fp32"],
  concurrencies: [1, 8, 64],
};

const scenario: Scenario = {
  ...base,
  device: fast,
  gpus: 1,
  topology: "instance-group",
  payload: "fp32",
  concurrency: 32,
};

test("selects the cheapest option that is fast enough, not the fastest", () => {
  // 40 images/s; one slow GPU reaches about 50
  const { options, requiredImagesPerSecond } = planJob(
    { images: 144_000, withinHours: 1 },
    base,
    choices,
    times,
    certain,
  );
  expect(requiredImagesPerSecond).toBe(40);
  expect(options[0]).toMatchObject({ meetsDeadline: true, scenario: { device: slow, gpus: 1 } });
});

test("selects more or faster GPUs if the cheapest misses the deadline", () => {
  const { options } = planJob(
    { images: 540_000, withinHours: 1 },
    base,
    { ...choices, payloads: ["fp32"] },
    times,
    certain,
  );
  const [best] = options;
  expect(best?.meetsDeadline).toBe(true);
  expect(best?.imagesPerSecond).toBeGreaterThanOrEqual(150);
  for (const option of options.filter(({ meetsDeadline }) => meetsDeadline)) {
    expect(option.usd).toBeGreaterThanOrEqual(best?.usd ?? Number.NaN);
  }
});

test("reports the bottleneck of an infeasible job, fewest GPUs first", () => {
  const { options, requiredBandwidth } = planJob(
    { images: 3_600_000, withinHours: 1 },
    { ...base, bandwidthMbps: 100 },
    { ...choices, payloads: ["fp32"] },
    times,
    certain,
  );
  expect(options.every(({ meetsDeadline }) => !meetsDeadline)).toBe(true);
  expect(options[0]).toMatchObject({ bottleneck: "link", scenario: { gpus: 1 } });
  expect(requiredBandwidth[0]?.mbps).toBeCloseTo((1000 * 602_112 * 8) / 1e6, 6);
});

test("hours and dollars follow from the rate", () => {
  const { options } = planJob({ images: 36_000, withinHours: 10 }, base, choices, times, certain);
  for (const { hours, usd, imagesPerSecond, scenario } of options) {
    expect(hours * 3600 * imagesPerSecond).toBeCloseTo(36_000, 6);
    expect(usd).toBeCloseTo(hours * scenario.gpus * scenario.device.usdPerHour, 9);
  }
});

test("uses as many clients as the job requires, even with diminishing returns", () => {
  const many = { ...choices, devices: [fast], gpus: [1], concurrencies: [16, 32, 64, 128] };
  const only = { ...many, payloads: ["fp32"] } as const;
  const rates = ratesByClients(scenario, times, 128);
  const [usual] = planJob({ images: 3600, withinHours: 1 }, base, only, times, certain).options;
  const clients = usual?.scenario.concurrency ?? 0;
  expect(clients).toBeLessThan(128);
  // between the throughput of the default number of clients and the maximum
  const needed = ((rates[clients - 1] ?? 0) + (rates[127] ?? 0)) / 2;
  const [found] = planJob(
    { images: needed * 3600, withinHours: 1 },
    base,
    only,
    times,
    certain,
  ).options;
  expect(found?.meetsDeadline).toBe(true);
  expect(found?.scenario.concurrency).toBeGreaterThan(clients);
});

test("the rates by clients match the individual predictions", () => {
  const rates = ratesByClients(scenario, times, 64);
  for (const concurrency of [1, 5, 64]) {
    const { imagesPerSecond } = predictScenario({ ...scenario, concurrency }, times);
    expect(imagesPerSecond / (rates[concurrency - 1] ?? 0)).toBeCloseTo(1, 9);
  }
});

test("suggests only beneficial changes, the best first", () => {
  const bound = { ...scenario, bandwidthMbps: 100, roundTripMs: 20 };
  const found = alternatives(bound, times);
  const now = predictScenario(bound, times).imagesPerSecond;
  const rates = found.map(({ prediction: { imagesPerSecond } }) => imagesPerSecond);
  expect(found.map(({ change }) => change)).toContain("send JPEG");
  expect(found.map(({ change }) => change)).not.toContain("2 GPUs");
  expect(rates).toEqual([...rates].sort((a, b) => b - a));
  expect(Math.min(...rates)).toBeGreaterThanOrEqual(1.05 * now);
});

test.each([
  ["jpeg", 10_000],
  ["uint8", 150_528],
  ["fp32", 602_112],
  ["json", 3_000_000],
] as const)("%s puts %d bytes per image on the link", (payload, bytes) => {
  // the link is the bottleneck for every payload
  const { bottleneck, limitImagesPerSecond } = predictScenario(
    { ...scenario, payload, bandwidthMbps: 1 },
    times,
  );
  expect(bottleneck).toBe("link");
  expect(limitImagesPerSecond).toBeCloseTo(1e6 / 8 / bytes, 9);
});

test("8-bit pixels are ingested four times as fast as floats", () => {
  const wide = { ...scenario, bandwidthMbps: 1e6, concurrency: 500 };
  const floats = predictScenario(wide, times);
  const pixels = predictScenario({ ...wide, payload: "uint8" }, times);
  expect(floats.bottleneck).toBe("ingest");
  expect(floats.limitImagesPerSecond).toBeCloseTo(1000, 6);
  expect(pixels.limitImagesPerSecond).toBeGreaterThan(1500);
});

test("a plan meets the deadline only if the 10th percentile of its prediction does", () => {
  const only = { ...choices, payloads: ["fp32"], devices: [fast] } as const;
  const half = { times: [times], factors: { throughput: [[0.5]], latency: [[1]] } };
  const job = { images: 5_400_000, withinHours: 10 };
  const exact = planJob(job, base, only, times, certain).options;
  const uncertain = planJob(job, base, only, times, half).options;
  expect(exact.some(({ meetsDeadline }) => meetsDeadline)).toBe(true);
  for (const { meetsDeadline, imagesPerSecond, interval } of uncertain) {
    expect(interval.p10).toBeCloseTo(imagesPerSecond / 2, 9);
    expect(meetsDeadline).toBe(imagesPerSecond / 2 >= 150);
  }
  expect(uncertain.filter(({ meetsDeadline }) => meetsDeadline).length).toBeLessThan(
    exact.filter(({ meetsDeadline }) => meetsDeadline).length,
  );
});

test("no interval exceeds what the link carries", () => {
  const doubled = { times: [times], factors: { throughput: [[2]], latency: [[1]] } };
  const { options } = planJob(
    { images: 3600, withinHours: 1 },
    { ...base, bandwidthMbps: 100 },
    { ...choices, payloads: ["fp32"] },
    times,
    doubled,
  );
  for (const { interval } of options) {
    expect(interval.p90).toBeLessThanOrEqual(1e8 / 8 / 602_112 + 1e-9);
  }
});
