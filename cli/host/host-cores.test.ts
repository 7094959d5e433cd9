import { expect, test } from "vitest";
import { gatewayCores, gatewayRatePerCore } from "../../bench/capacity/service-times.ts";
import { gpuCatalogue, gpuNames } from "../../contract/gpus.ts";
import { coresNote } from "./host-cores.ts";

const a100 = gpuNames.find((name) => name.startsWith("a100"))!;
const hostOf = (name: (typeof gpuNames)[number], count: number) => ({
  name,
  label: gpuCatalogue[name].label,
  count,
});

test("warns about a host with too few cores, with the number that the GPUs require", () => {
  const line = coresNote(hostOf(a100, 4), 8)!;
  expect(line).toMatch(/^the host has 8 CPU cores, and 4 × NVIDIA A100/);
  const required = Number(/requires about (\d+) cores/.exec(line)?.[1]);
  expect(coresNote(hostOf(a100, 4), required)).toBeUndefined();
  expect(coresNote(hostOf(a100, 4), required - 1)).toBeDefined();
});

test("requires more cores for more GPUs and for GPUs with a higher peak", () => {
  const required = (name: (typeof gpuNames)[number], count: number) =>
    Number(/requires about (\d+) cores/.exec(coresNote(hostOf(name, count), 0) ?? "")?.[1]);
  expect(required(a100, 2)).toBeGreaterThan(required(a100, 1));
  expect(required("t4", 1)).toBeLessThan(required(a100, 1));
});

test("does not warn if the number of cores or the GPU is unknown", () => {
  expect(coresNote(hostOf(a100, 4), undefined)).toBeUndefined();
  expect(coresNote({ name: "own", label: "Own", count: 1 }, 1)).toBeUndefined();
  expect(coresNote({ name: "own", label: "Own", count: 1, fp16DenseTflops: 65 }, 1)).toBeDefined();
});

test("the time of a JPEG is the measured one at each measured size, and grows between and beyond", () => {
  const ms = (bytes: number) => 1_000 / gatewayRatePerCore(bytes);
  // 0.24 ms for float32 instead of pixels
  expect(ms(10_000)).toBeCloseTo(1.11, 2);
  expect(ms(300_000)).toBeCloseTo(7.39 + 0.237, 2);
  expect(ms(3_550_000)).toBeCloseTo(47.5 + 0.237, 1);
  const sizes = [1, 10, 50, 300, 1_000, 3_550, 10_000].map((kilobytes) => ms(kilobytes * 1_000));
  expect(sizes).toEqual(sizes.toSorted((a, b) => a - b));
  expect(gatewayCores(1_000, 300_000)).toBe(8);
});
