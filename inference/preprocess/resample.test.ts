import fc from "fast-check";
import { expect, test } from "vitest";
import { compileKernel, ImageKernel } from "./image-kernel.mjs";
import type { PixelBuffer, Window } from "./image-types.ts";
import { Resampler, rowsOf } from "./resample.mjs";
import { planOf } from "./resample-plan.mjs";
import { transformed } from "./test-pillow-port.ts";

const resampler = new Resampler(new ImageKernel(compileKernel()));

/** Noise that often reaches both ends of the range. */
function noise(width: number, height: number, channels: number, seed: number): PixelBuffer {
  const data = new Uint8Array(width * height * channels);
  let state = seed | 1;
  for (let at = 0; at < data.length; at++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    data[at] = Math.min(255, Math.max(0, ((state >>> 8) & 0x1ff) - 128));
  }
  return { data, width, height, channels };
}

function cut({ data, width, channels }: PixelBuffer, window: Window): PixelBuffer {
  const rows = Array.from({ length: window.height }, (_, row) => {
    const from = ((window.top + row) * width + window.left) * channels;
    return data.subarray(from, from + window.width * channels);
  });
  return { ...window, channels, data: Buffer.concat(rows) };
}

function expectSame(
  image: PixelBuffer,
  orientation: number,
  side: number,
  hasAlpha: boolean,
): void {
  const plan = planOf({ ...image, orientation }, side);
  const expected = transformed(image, orientation, side, hasAlpha);
  for (const given of [image, cut(image, plan.source)]) {
    const rows = rowsOf(given, plan, resampler);
    expect(Buffer.compare(resampler.resample(rows, plan, hasAlpha), expected)).toBe(0);
  }
}

test("the kernel resamples like Pillow, bit for bit", () => {
  const size = fc.integer({ min: 1, max: 400 });
  fc.assert(
    fc.property(
      size,
      size,
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 8 }),
      fc.constantFrom(16, 32, 224),
      fc.integer(),
      fc.boolean(),
      (width, height, channels, orientation, side, seed, alpha) => {
        const hasAlpha = alpha && channels % 2 === 0;
        expectSame(noise(width, height, channels, seed), orientation, side, hasAlpha);
      },
    ),
    { numRuns: 150 },
  );
});

test.each([
  [1, 1],
  [2000, 1],
  [1, 2000],
  [3000, 7],
  [7, 3000],
  [1500, 1100], // several chunks
])("the kernel resamples %i × %i pixels like Pillow, however they are stored", (width, height) => {
  const image = noise(width, height, 3, 7);
  for (const orientation of [1, 3, 6, 8]) expectSame(image, orientation, 16, false);
});

test("stale data in the kernel's memory does not affect the next image", () => {
  expectSame(noise(900, 700, 4, 3), 1, 224, true);
  expectSame(noise(50, 60, 1, 4), 1, 224, false);
  expectSame(noise(51, 40, 2, 5), 6, 224, true);
});

test("a very long image needs only the cropped part", () => {
  const { source } = planOf({ width: 440_000, height: 220, orientation: 1 }, 224);
  expect(source).toMatchObject({ top: 0, height: 220 });
  expect(source.width).toBeLessThan(224 + 4);
});

test("a rotated image needs the same as an upright one", () => {
  const upright = planOf({ width: 600, height: 400, orientation: 1 }, 224).source;
  const onSide = planOf({ width: 400, height: 600, orientation: 6 }, 224).source;
  expect(onSide).toEqual({
    left: upright.top,
    top: upright.left,
    width: upright.height,
    height: upright.width,
  });
});
