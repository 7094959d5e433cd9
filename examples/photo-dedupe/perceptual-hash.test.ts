import sharp from "sharp";
import { expect, test } from "vitest";
import { hashDistance, hashSide, hashWords, ones, perceptualHash } from "./perceptual-hash.ts";
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
  expect(
    hashWords(hash)
      .map(ones)
      .reduce((a, b) => a + b),
  ).toBe(32);
});

test("a resized picture has a small distance, another picture a large one", async () => {
  const original = await hashOf(picture(5, 640, 480));
  expect(hashDistance(original, await hashOf(picture(5, 320, 240)))).toBeLessThanOrEqual(4);
  expect(hashDistance(original, await hashOf(picture(8, 640, 480)))).toBeGreaterThan(12);
});

test("a turned or mirrored picture has a small distance", async () => {
  const png = await picture(5, 640, 480).png().toBuffer();
  const original = await hashOf(sharp(png));
  for (const angle of [90, 180, 270]) {
    const turned = await hashOf(sharp(await sharp(png).rotate(angle).png().toBuffer()));
    expect(hashDistance(original, turned), String(angle)).toBeLessThanOrEqual(6);
    const mirrored = await hashOf(sharp(await sharp(png).rotate(angle).flop().png().toBuffer()));
    expect(hashDistance(original, mirrored), `${angle}, mirrored`).toBeLessThanOrEqual(6);
  }
});

test("the distance obeys the triangle inequality", () => {
  const words = Array.from({ length: 12 }, (_, i) => Math.imul(i + 1, 0x9e37_79b1) >>> 0);
  const hashes = words.map((word, i) => {
    const low = Math.imul(words[(i * 7) % 12]!, 0x85eb_ca6b) >>> 0;
    return word.toString(16).padStart(8, "0") + low.toString(16).padStart(8, "0");
  });
  for (const a of hashes) {
    for (const b of hashes) {
      expect(hashDistance(a, b)).toBe(hashDistance(b, a));
      for (const c of hashes) {
        expect(hashDistance(a, c)).toBeLessThanOrEqual(hashDistance(a, b) + hashDistance(b, c));
      }
    }
  }
});

test("counts the bits of a word", () => {
  expect([0, 1, -1, 0x8000_0000, 0x0f0f_0f0f].map(ones)).toEqual([0, 1, 32, 1, 16]);
});
