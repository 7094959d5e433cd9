import { expect, test } from "vitest";
import { type CatalogueGpu, gpuCatalogue } from "./gpus.ts";

const specs = Object.entries<CatalogueGpu>(gpuCatalogue);

test("gives every GPU a unique label", () => {
  expect(new Set(specs.map(([, spec]) => spec.label)).size).toBe(specs.length);
});

test.each(specs)("%s has every fact", (_, spec) => {
  const facts = ["label", "class", "vramMiB", "computeCapability", "fp16DenseTflops", "price"];
  const derived = ["architecture", "driverBranch", "tritonRelease"];
  expect(Object.keys(spec).sort()).toEqual([...facts, ...derived].sort());
  for (const [fact, value] of Object.entries(spec)) expect(value, fact).toBeTruthy();
});

test.each(specs)("%s is in the class that NVIDIA's name implies", (_, { label, class: of }) => {
  const expected = /GeForce|TITAN/.test(label)
    ? "consumer"
    : /RTX/.test(label)
      ? "workstation"
      : "data-centre";
  expect(of).toBe(expected);
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

test("lists the memory in the label minus the reserved part", () => {
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
