import { Command } from "commander";
import { expect, test } from "vitest";
import { gatewayComparison } from "../gateway/gateway.ts";
import { gatewayFigures, gatewayLoads } from "../gateway/loads.ts";
import {
  ceilingBatchSizes,
  type ServerRun,
  serverFigures,
  serverLoads,
  towerLoad,
} from "../server/loads.ts";
import { chooseLoads, serverComparison } from "../server/server.ts";
import { type Comparison, type Load, planRounds, registerComparison } from "./comparison.ts";
import { missedTargets, type Run, resultsOf, resultsText } from "./figures.ts";
import type { ServiceRun } from "./service.ts";

async function start<R extends Run, L extends Load>(
  comparison: Comparison<R, L>,
  ...args: readonly string[]
): Promise<void> {
  const command = new Command().exitOverride().configureOutput({ writeErr: () => {} });
  registerComparison(command, comparison).option("--model <models...>");
  await command.parseAsync(args, { from: "user" });
}

const flags = ["--quick", "--no-baseline", "--strict", "--rounds", "5", "--report", "reports"];

test("fails on wrong options, and accepts all others", async () => {
  await expect(start(serverComparison, ...flags, "--only", "c16", "c17")).rejects.toThrow(
    "--only must be one of single, c16, batch32, photos, 12mp, tiny, int8, health, got 'c17'",
  );
  await expect(start(gatewayComparison, ...flags, "--only", "photo")).rejects.toThrow(
    "--only must be one of thumbnails, photos, 12mp, got 'photo'",
  );
  await expect(start(serverComparison, "--model", "dinov3")).rejects.toThrow(
    /^model must be one of .*, got 'dinov3'$/,
  );
  await expect(start(serverComparison, "--model", "dinov2-small:text")).rejects.toThrow(
    "model dinov2-small must have a text tower",
  );
  const photos = ["--model", "dinov2-small", "--only", "photos"];
  await expect(start(serverComparison, ...photos)).rejects.toThrow(
    "--only must be one of single, c16, got 'photos'",
  );
  await expect(start(serverComparison, "--rounds", "many")).rejects.toThrow(
    "It must be an integer from 1 to 100.",
  );
  await expect(start(gatewayComparison, "--seconds", "0")).rejects.toThrow(
    "It must be more than 0 and at most 40.",
  );
});

test("reverses the subjects in every second round, and excludes unavailable ones", () => {
  const planned = (excluded: readonly string[]) =>
    planRounds(chooseLoads(["tiny", "single"], []), 2, excluded).map(
      ({ round, load, subject }) => `${round} ${load.id} ${subject}`,
    );
  expect(planned([])).toEqual([
    "1 single ceiling",
    "1 single server",
    "1 single baseline",
    "1 tiny server",
    "1 tiny baseline",
    "2 single baseline",
    "2 single server",
    "2 single ceiling",
    "2 tiny baseline",
    "2 tiny server",
  ]);
  expect(planned(["baseline"])).toHaveLength(6);
});

test("measures the towers instead of the default model", () => {
  const towers = [
    { model: "dinov2-small", modality: "image" },
    { model: "openclip-vit-b32", modality: "text" },
  ] as const;
  expect(chooseLoads(["c16"], towers).map(({ id }) => id)).toEqual([
    "dinov2-small:image:c16",
    "openclip-vit-b32:text:c16",
  ]);
});

test("the ceiling of a load is measured at batch sizes that its clients can fill", () => {
  const sizes = Object.fromEntries(serverLoads.map((load) => [load.id, ceilingBatchSizes(load)]));
  expect(sizes).toMatchObject({ single: [1], "12mp": [1, 2, 4], c16: [1, 8, 16], batch32: [32] });
});

const c16 = serverLoads.filter(({ id }) => id === "c16");
const run = (
  subject: string,
  round: number,
  imagesPerSecond: number,
  more: Partial<ServerRun> = {},
): ServerRun => ({
  ...{ load: "c16", subject, round, imagesPerSecond, readyMs: 1_000, failures: {} },
  ...more,
});
const found = (results: ReturnType<typeof resultsOf>, name: string) =>
  results.find((result) => result.name === name);

test("computes the median of the ratios of runs of the same round", () => {
  const runs = [
    ...[run("ceiling", 1, 100), run("server", 1, 99), run("server", 2, 45)],
    ...[run("ceiling", 2, 50), run("ceiling", 3, 50), run("server", 3, 49)],
    // has no run of the ceiling
    run("server", 4, 60),
  ];
  expect(
    found(resultsOf(runs, serverFigures(c16)), "images/s as a ratio to the ceiling"),
  ).toMatchObject({ value: 0.98, rounds: [0.99, 0.9, 0.98], passed: true });
});

test("computes the latency of one client above a run of the ceiling, by round", () => {
  const load = towerLoad({ model: "dinov2-small", modality: "image" }, "single");
  const latency = (p50Ms: number) => ({ count: 10, p50Ms, p95Ms: 1, p99Ms: 1 });
  const both = (round: number, alone: number, served: number) => [
    run("ceiling", round, 1, {
      load: load.id,
      batchSizes: [{ batchSize: 1, imagesPerSecond: 1, cpuMsPerImage: 1, p50Ms: alone }],
    }),
    run("server", round, 1, { load: load.id, latency: latency(served), outsideMs: served / 10 }),
  ];
  const results = resultsOf(
    [...both(1, 20, 22), ...both(2, 40, 45), ...both(3, 20, 24)],
    serverFigures([load]),
  );
  expect(found(results, "latency added to the ceiling")?.rounds).toEqual([2, 5, 4]);
  expect(found(results, "outside decoding and inference")?.value).toBe(2.4);
  expect(missedTargets(results)).toEqual([
    "dinov2-small, 10 KB JPEG, batch 1, concurrency 1: latency added to the ceiling must be at most 3 ms, got 4 ms",
  ]);
});

test("counts failed requests as a missed target, and names disturbances", () => {
  const results = resultsOf(
    [run("server", 1, 60, { failures: { "429": 3 }, othersShare: 0.4, residentAfterMB: 800 })],
    serverFigures(c16),
  );
  expect(missedTargets(results)).toEqual([
    "10 KB JPEG, batch 1, concurrency 16: failed requests must be at most 0, got 3",
  ]);
  expect(found(results, "share of the machine that other processes used, at most")?.value).toBe(
    0.4,
  );
  expect(found(results, "resident memory after load")).toMatchObject({ value: 800, passed: true });
});

test("compares processor time of the gateway within a round, so that a slow round changes no ratio", () => {
  const cpu = (round: number, subject: string, cpuMsPerImage: number): ServiceRun => ({
    ...{ load: "thumbnails", subject, round, cpuMsPerImage, failures: {} },
    latency: { count: 10, p50Ms: 10, p95Ms: 12, p99Ms: 25 },
  });
  const runs = [
    ...[cpu(1, "gateway-uint8", 1), cpu(1, "gateway-uint8-2-cores", 1.25)],
    ...[cpu(1, "gateway-jpeg", 0.4), cpu(1, "baseline", 4), cpu(2, "baseline", 8)],
    ...[
      cpu(2, "gateway-jpeg", 0.8),
      cpu(2, "gateway-uint8-2-cores", 2),
      cpu(2, "gateway-uint8", 2),
    ],
  ];
  const results = resultsOf(runs, gatewayFigures(gatewayLoads.slice(0, 1)));
  expect(found(results, "baseline ÷ gateway, exact")?.rounds).toEqual([4, 4]);
  expect(found(results, "one core ÷ two cores")?.rounds).toEqual([0.8, 1]);
  expect(found(results, "ceiling ÷ gateway, exact")).toBeUndefined();
  const text = resultsText(results);
  expect(text).toContain("3 of 5 targets met");
  expect(text).toMatch(/baseline ÷ gateway, exact +4\.00 +4\.00, 4\.00 +✓ at least 3/);
});
