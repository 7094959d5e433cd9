import { expect, test } from "vitest";
import { type GpuSpec, gpuCatalogue, gpuNames } from "./gpus.ts";

const specs = Object.entries<GpuSpec>(gpuCatalogue);

test("has every GPU that the settings promise", () => {
  expect(gpuNames).toEqual([
    "t4",
    "l4",
    "a10",
    "rtx-a4000",
    "rtx-a6000",
    "rtx-4080",
    "rtx-4090",
    "rtx-pro-6000-blackwell",
    "a100-sxm4-40gb",
    "a100-sxm4-80gb",
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "l40s",
    "h100",
    "h200",
    "b200",
  ]);
});

test("names every GPU differently", () => {
  expect(new Set(specs.map(([, spec]) => spec.label)).size).toBe(specs.length);
});

/** First compute capability of an architecture, and the first one after it. */
const capabilities: Readonly<Record<GpuSpec["architecture"], readonly [number, number]>> = {
  Turing: [7.5, 8],
  Ampere: [8, 8.9],
  "Ada Lovelace": [8.9, 9],
  Hopper: [9, 10],
  Blackwell: [10, 13],
};

test.each(specs)("%s has a compute capability of its architecture", (_, spec) => {
  const [from, to] = capabilities[spec.architecture];
  expect(Number(spec.computeCapability)).toBeGreaterThanOrEqual(from);
  expect(Number(spec.computeCapability)).toBeLessThan(to);
});

test.each(specs)("%s has a plausible size, speed and price", (_, spec) => {
  expect(spec.vramMiB / 1024).toBeGreaterThanOrEqual(14);
  expect(spec.vramMiB / 1024).toBeLessThanOrEqual(192);
  expect(spec.fp16DenseTflops).toBeGreaterThanOrEqual(50);
  expect(spec.fp16DenseTflops).toBeLessThanOrEqual(2500);
  expect(spec.price.usdPerHour).toBeGreaterThan(0.1);
  expect(spec.price.usdPerHour).toBeLessThan(15);
  expect(spec.price.date).toMatch(/^20\d\d-(0[1-9]|1[0-2])$/);
});

test("gives the memory in the label less what the card keeps for itself", () => {
  for (const [, { label, vramMiB }] of specs) {
    const gigabytes = / (\d+) GB$/.exec(label)?.[1];
    if (gigabytes === undefined) continue;
    expect(vramMiB / 1024, label).toBeLessThanOrEqual(Number(gigabytes));
    expect(vramMiB / 1024, label).toBeGreaterThan(Number(gigabytes) * 0.95);
  }
});

test("has the prices of the published results", () => {
  const published = specs.filter(([, { price }]) => price.source === "published-results");
  expect(published.map(([name, { price }]) => [name, price.usdPerHour])).toEqual([
    ["rtx-4080", 2.0],
    ["rtx-4090", 0.391],
    ["a100-sxm4-80gb", 1.5],
  ]);
});
