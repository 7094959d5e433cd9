import { expect, test } from "vitest";
import { gatewayCores } from "../../bench/capacity/gateway-cores.ts";
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

test("larger images and larger payloads require more cores", () => {
  expect(gatewayCores(1_000, "photos", "uint8")).toBeGreaterThan(
    gatewayCores(1_000, "thumbnails", "uint8"),
  );
  expect(gatewayCores(1_000, "thumbnails", "fp32")).toBeGreaterThan(
    gatewayCores(1_000, "thumbnails", "jpeg"),
  );
});
