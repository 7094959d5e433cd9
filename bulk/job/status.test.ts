import { expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import type { BulkJob, ShardClaim } from "./job.ts";
import { coveredMs, type DoneShard, statusOf } from "./status.ts";

const at = (second: number) => new Date(second * 1000).toISOString();
const shard = { entries: 100, bytes: 1_000, hash: "0" };
const job: BulkJob = {
  schema: 1,
  plannedAt: at(0),
  source: "/photos",
  model: defaultModel,
  vectors: "float32",
  usdPerWorkerHour: 3.6,
  shards: [shard, shard, shard],
};
const record: DoneShard = {
  schema: 1,
  shard: 0,
  worker: 0,
  host: "a",
  startedAt: at(0),
  finishedAt: at(10),
  rows: 98,
  reused: 0,
  bytesRead: 990,
  errors: { undecodable_image: 2 },
  partBytes: 1,
  peakRssMiB: 200,
};
const claim: ShardClaim = {
  schema: 1,
  worker: 0,
  host: "a",
  startedAt: at(10),
  beatAt: at(15),
  images: 50,
};

test("computes rate, time left and cost from the worker's records and claim", () => {
  expect(statusOf(job, [record], [claim], 120, 16_000)).toMatchObject({
    shards: { total: 3, done: 1, running: 1, stale: 0 },
    rows: 98,
    errors: { undecodable_image: 2 },
    imagesPerSecond: 10,
    secondsLeft: 15,
    usd: 0.015,
    workers: [{ worker: 0, state: "running", images: 150, seconds: 15 }],
  });
});

test("a claim whose time is in the future, of another clock, is stale", () => {
  const { shards } = statusOf(job, [record], [{ ...claim, beatAt: at(1_000) }], 120, 16_000);
  expect(shards).toMatchObject({ running: 0, stale: 1 });
});

test("a worker without progress is stale, and has no rate", () => {
  const status = statusOf(job, [record], [claim], 120, 136_000);
  expect(status).toMatchObject({ shards: { running: 0, stale: 1 }, imagesPerSecond: 0 });
  expect(status.workers[0]?.state).toBe("stale");
});

test("rows that were reused do not count towards the rate", () => {
  const reused = { ...record, reused: 98 };
  expect(statusOf(job, [reused], [claim], 120, 16_000).workers[0]?.images).toBe(52);
});

test("overlapping spans count once, and gaps do not count", () => {
  expect(
    coveredMs([
      [100, 110],
      [0, 10],
      [5, 20],
      [6, 7],
    ]),
  ).toBe(30);
});
