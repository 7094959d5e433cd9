import { expect, test } from "vitest";
import { imageElements } from "../../contract/model-signature.ts";
import { measureSerialization } from "./client-serialization.ts";

const tensor = Float32Array.from({ length: imageElements }, (_, i) => Math.sin(i));

test("JSON is larger than binary tensors and slower to encode", async () => {
  const { signal } = new AbortController();
  const costs = await measureSerialization({ batches: [1], tensor, signal });
  const [binary, json] = costs;
  expect(costs.map(({ serialization, batch }) => [serialization, batch])).toEqual([
    ["binary", 1],
    ["json", 1],
  ]);
  // 602 112 bytes of the tensor and the header
  expect(binary?.bytes).toBeGreaterThan(602_112);
  expect(binary?.bytes).toBeLessThan(603_000);
  expect(json?.bytes).toBeGreaterThan(2 * (binary?.bytes ?? 0));
  expect(json?.encodeMs).toBeGreaterThan(10 * (binary?.encodeMs ?? 0));
  for (const { decodeMs } of costs) expect(decodeMs).toBeGreaterThan(0);
});

test("fails when interrupted", async () => {
  const signal = AbortSignal.abort();
  await expect(measureSerialization({ batches: [1], tensor, signal })).rejects.toThrow("aborted");
});
