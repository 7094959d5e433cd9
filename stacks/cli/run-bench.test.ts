import { expect, test } from "vitest";
import { testBenchRecord } from "../../bench/report/test-bench-record.ts";
import { dockerDocument } from "../../bench/src/test-artefact.ts";
import { devicesOf } from "./run-bench.ts";

/** What an environment with two T4 says of itself. */
const deployed = {
  ...dockerDocument().output.environment.value,
  accelerator: "gpu",
  gpu: { name: "t4", count: 2, vramMiB: 16_384, usdPerHour: 0.5, priceDate: "2026-01" },
} as const;
const { subject } = testBenchRecord();

test("the peak of an environment is that of the GPUs that its deployment names", () => {
  expect([...devicesOf(subject, [deployed])]).toEqual([
    ["two-services", { name: "t4", count: 2, fp16DenseTflops: 65 }],
  ]);
});

test("the tiny model has no peak to be measured against", () => {
  const model = { ...subject.model, architecture: "tiny" };
  expect(devicesOf({ model }, [deployed]).size).toBe(0);
});
