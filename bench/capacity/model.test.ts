import { expect, test } from "vitest";
import { type Demand, predict, type System } from "./model.ts";

const system: System = {
  link: { bandwidthMbps: 1e6, roundTripMs: 0, connections: "kept" },
  oneConnection: false,
  client: { betweenMs: 0, writeMsPerImage: 0 },
  overheadMs: 0,
  ingestMsPerImage: 0,
  compute: { firstMs: 5, perImageMs: 1 },
  maxBatch: 32,
  instances: 1,
  gpus: 1,
  topology: "instance-group",
};
const demand: Demand = {
  concurrency: 1,
  imagesPerRequest: 1,
  bytesPerImage: 0,
  responseBytesPerImage: 0,
};

test("a single client does not queue", () => {
  const { latencyMs, imagesPerSecond } = predict(
    { ...demand, imagesPerRequest: 4 },
    { ...system, overheadMs: 10, ingestMsPerImage: 1 },
  );
  expect(latencyMs).toBeCloseTo(10 + 4 + 5 + 3, 3);
  expect(imagesPerSecond).toBeCloseTo(4000 / 22, 1);
});

test("requests of many clients are batched up to the maximum batch size", () => {
  const { imagesPerSecond } = predict({ ...demand, concurrency: 200 }, system);
  expect(imagesPerSecond).toBeCloseTo(32_000 / (5 + 31), 3);
});

test("the images of a request count towards the maximum batch size", () => {
  const { imagesPerSecond } = predict(
    { ...demand, concurrency: 100, imagesPerRequest: 16 },
    system,
  );
  expect(imagesPerSecond).toBeCloseTo(32_000 / 36, 3);
});

test.each(["instance-group", "per-gpu"] as const)("%s uses all GPUs", (topology) => {
  const { imagesPerSecond } = predict(
    { ...demand, concurrency: 2000 },
    { ...system, gpus: 4, topology },
  );
  expect(imagesPerSecond).toBeGreaterThan(0.99 * 4 * (32_000 / 36));
  expect(imagesPerSecond).toBeLessThanOrEqual(4 * (32_000 / 36) * 1.000001);
});

test("only one Triton server per GPU exceeds the ingest limit of one Triton server", () => {
  const bound = { ...system, gpus: 4, ingestMsPerImage: 2 };
  const load = { ...demand, concurrency: 500 };
  const group = predict(load, { ...bound, topology: "instance-group" });
  const each = predict(load, { ...bound, topology: "per-gpu" });
  expect(group.bottleneck).toBe("ingest");
  expect(group.imagesPerSecond).toBeCloseTo(500, 3);
  expect(each.imagesPerSecond).toBeGreaterThan(1900);
});

test("the link is shared by all clients and is the bottleneck when saturated", () => {
  const { imagesPerSecond, bottleneck, limitImagesPerSecond } = predict(
    { ...demand, concurrency: 100, bytesPerImage: 100_000 },
    { ...system, link: { bandwidthMbps: 80, roundTripMs: 5, connections: "kept" } },
  );
  expect(bottleneck).toBe("link");
  expect(limitImagesPerSecond).toBeCloseTo(100, 9);
  expect(imagesPerSecond).toBeCloseTo(100, 3);
});

test("the client's work between requests bounds the throughput and is not part of the latency", () => {
  const { imagesPerSecond, latencyMs, bottleneck } = predict(
    { ...demand, concurrency: 50 },
    { ...system, client: { betweenMs: 20, writeMsPerImage: 0 } },
  );
  expect(bottleneck).toBe("client");
  expect(imagesPerSecond).toBeCloseTo(50, 3);
  expect(latencyMs).toBeLessThan(8);
});

test("encoding JSON is part of the latency", () => {
  const { latencyMs } = predict(demand, {
    ...system,
    client: { betweenMs: 20, writeMsPerImage: 50 },
  });
  expect(latencyMs).toBeCloseTo(55, 3);
});

test("the images of one request are decoded by all workers", () => {
  const decoding = (workers: number) =>
    predict({ ...demand, imagesPerRequest: 8 }, { ...system, decode: { msPerImage: 10, workers } })
      .latencyMs;
  expect(decoding(1) - decoding(4)).toBeCloseTo(80 - 20, 6);
});

test("decoding workers bound the throughput together", () => {
  const { imagesPerSecond, bottleneck } = predict(
    { ...demand, concurrency: 100 },
    { ...system, decode: { msPerImage: 10, workers: 3 } },
  );
  expect(bottleneck).toBe("decode");
  expect(imagesPerSecond).toBeCloseTo(300, 3);
});

test("requests on one connection are sequential", () => {
  const link = { bandwidthMbps: 200, roundTripMs: 25, connections: "new" } as const;
  const load = { ...demand, concurrency: 16, bytesPerImage: 602_112 };
  const many = predict(load, { ...system, link });
  const one = predict(load, { ...system, link, oneConnection: true });
  expect(one.bottleneck).toBe("connection");
  expect(one.imagesPerSecond).toBeLessThan(many.imagesPerSecond / 4);
});

test("the parts add up to the latency", () => {
  const { latencyMs, parts } = predict(
    { ...demand, concurrency: 20, bytesPerImage: 600_000 },
    {
      ...system,
      link: { bandwidthMbps: 200, roundTripMs: 30, connections: "new" },
      client: { betweenMs: 10, writeMsPerImage: 5 },
      decode: { msPerImage: 3, workers: 2 },
      overheadMs: 10,
      ingestMsPerImage: 1,
    },
  );
  expect(parts.reduce((sum, { ms }) => sum + ms, 0)).toBeCloseTo(latencyMs, 9);
});
