import { expect, test } from "vitest";
import { imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { elementCount } from "../../contract/tensor.ts";
import { measureSerialization } from "./client-serialization.ts";

const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

const tensor = Float32Array.from({ length: imageElements }, (_, i) => Math.sin(i));

test("JSON is larger than binary tensors and slower to encode", async () => {
  const { signal } = new AbortController();
  const costs = await measureSerialization({ spec: openclipVitB32, batches: [1], tensor, signal });
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
  await expect(
    measureSerialization({ spec: openclipVitB32, batches: [1], tensor, signal }),
  ).rejects.toThrow("aborted");
});
