import sharp from "sharp";
import { expect, test } from "vitest";
import { hashDistance, hashSide, ones, perceptualHash } from "./perceptual-hash.ts";
import { picture } from "./test-photos.ts";

async function hashOf(image: ReturnType<typeof picture>): Promise<string> {
  const png = await image.png().toBuffer();
  const luminance = sharp(png)
    .toColourspace("b-w")
    .resize(hashSide, hashSide, { fit: "fill" })
    .raw();
  return perceptualHash(await luminance.toBuffer());
}

test("equals the transform of the definition, bit for bit", () => {
  const luminance = Uint8Array.from(
    { length: hashSide ** 2 },
    (_, i) => ((i * 7919) ^ (i >> 3)) & 255,
  );
  const coefficients: number[] = [];
  for (let v = 1; v <= 8; v++) {
    for (let u = 1; u <= 8; u++) {
      let sum = 0;
      for (let y = 0; y < 32; y++) {
        for (let x = 0; x < 32; x++) {
          sum +=
            luminance[y * 32 + x]! *
            Math.cos(((2 * x + 1) * u * Math.PI) / 64) *
            Math.cos(((2 * y + 1) * v * Math.PI) / 64);
        }
      }
      coefficients.push(sum);
    }
  }
  const sorted = [...coefficients].sort((a, b) => a - b);
  const median = (sorted[31]! + sorted[32]!) / 2;
  const bits = coefficients.map((value) => (value > median ? "1" : "0")).join("");
  expect(
    BigInt(`0x${perceptualHash(luminance)}`)
      .toString(2)
      .padStart(64, "0"),
  ).toBe(bits);
});

test("half of the bits are set", async () => {
  const hash = await hashOf(picture(5));
  expect(hashDistance(hash, "0000000000000000")).toBe(32);
});

test("a resized picture has a small distance, another picture a large one", async () => {
  const original = await hashOf(picture(5, 640, 480));
  expect(hashDistance(original, await hashOf(picture(5, 320, 240)))).toBeLessThanOrEqual(4);
  expect(hashDistance(original, await hashOf(picture(6, 640, 480)))).toBeGreaterThan(12);
});

test("counts the bits of a word", () => {
  expect([0, 1, -1, 0x8000_0000, 0x0f0f_0f0f].map(ones)).toEqual([0, 1, 32, 1, 16]);
});
