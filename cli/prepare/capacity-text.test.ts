import { expect, test } from "vitest";
import { transferCost } from "../../bench/capacity/plan.ts";
import { predictScenario } from "../../bench/capacity/scenario.ts";
import { publishedBytes, publishedModel } from "../../bench/capacity/service-times.ts";
import { notesOf, scenarioText } from "./capacity-text.ts";

test("an unreached limit is not printed as a number", () => {
  const [note] = notesOf(scenario, times, "gpu");
  expect(note).toContain("assumed to have no limit");
  expect(notesOf(scenario, { ...times, ingestMsPerImage: 0.7 }, "gpu")[0]).toContain("1,429");
});

const times = {
  model: publishedModel.name,
  bytes: publishedBytes,
  compute: () => ({ firstMs: 4, perImageMs: 1 }),
  measured: () => true,
  decodeMsPerImage: 1,
  decodeWorkers: 1,
  overheadMs: 1,
  ingestMsPerImage: 5e-14,
  gatewayMsPerImage: 0,
  maxBatch: 32,
  ingestPerCore: { ms: { httpFp32: 10, httpUint8: 2, grpcFp32: 5 }, scaling: 1, measuredCores: 2 },
  jsonMsPerImage: 1,
  jsonBytesPerImage: 1,
};
const scenario = {
  device: { name: "a10", usdPerHour: 1 },
  gpus: 4,
  topology: "instance-group",
  backend: "onnxruntime",
  payload: "fp32",
  bandwidthMbps: 1000,
  roundTripMs: 1,
  connections: "kept",
  concurrency: 8,
  imagesPerRequest: 1,
  clientMs: 0,
  jpegBytes: 10_000,
} as const;

const band = { p10: 1, p90: 2 };
const interval = { imagesPerSecond: band, latencyMs: band, usdPerThousand: band };

test("a limit on more cores than were measured is a lower bound, and the assumed cores are stated", () => {
  const measured = { ...times, ingestMsPerImage: undefined };
  const text = (cores: number | undefined) => {
    const host = { ...scenario, gpus: 1, bandwidthMbps: 1e5, concurrency: 200, cores };
    const notes = notesOf(host, measured, "ingest");
    return scenarioText(
      host,
      predictScenario(host, measured),
      [],
      { sources: [], notes },
      transferCost(1_000, 10_000, 0.09),
      interval,
    );
  };
  expect(text(4)).toContain(
    "limit ≥ 200 images/s (as measured on fewer cores; 400 if it grows with them)",
  );
  expect(text(2)).toContain("at most 200 images/s");
  expect(text(4)).toContain("The host has 4 cores (--cores).");
  expect(text(undefined)).toContain("The host has 8 cores, an assumption of 8 per GPU (--cores).");
});

test("states the cores with which a gateway keeps up with the GPUs", () => {
  const prediction = { ...predictScenario(scenario, times), gpusAloneImagesPerSecond: 2_000 };
  const text = (jpegBytes: number) => {
    const transfer = transferCost(1_000, jpegBytes, 0.09);
    const trust = { sources: [], notes: [] };
    return scenarioText({ ...scenario, jpegBytes }, prediction, [], trust, transfer, interval);
  };
  expect(text(10_000)).toMatch(/GPUs alone {6}2,000 images\/s .* 10 kB requires 3 cores\n/);
  // 7.6 ms each
  expect(text(300_000)).toMatch(/GPUs alone {6}2,000 images\/s .* 300 kB requires 16 cores\n/);
  expect(text(300_000)).toMatch(/transfer {8}0\.30 GB .* \$0\.09 per GB .*: \$0\.027 per 1,000/);
});
