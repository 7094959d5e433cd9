import fc from "fast-check";
import { expect, test } from "vitest";
import type { PixelInput } from "../../contract/model-spec.ts";
import { compileKernel, ImageKernel } from "./image-kernel.mjs";
import type { PixelBuffer, Window } from "./image-types.ts";
import { Resampler, rowsOf } from "./resample.mjs";
import { planOf } from "./resample-plan.mjs";
import { squareInput, towerOf, vitB32 } from "./test-inputs.ts";
import { centre, resizedByTensorFlow, transformed } from "./test-pillow-port.ts";

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
  input: PixelInput,
  hasAlpha: boolean,
): void {
  const plan = planOf({ ...image, orientation }, input);
  const expected = transformed(image, orientation, input, hasAlpha);
  for (const given of [image, cut(image, plan.source)]) {
    const rows = rowsOf(given, plan, resampler);
    expect(Buffer.compare(resampler.resample(rows, plan, hasAlpha), expected)).toBe(0);
  }
}

const filter = fc.constantFrom("bicubic", "bilinear", "tensorflow-bilinear");

/** Any image input, with sizes that are no multiple of the kernel's registers. */
const input = fc
  .record({
    width: fc.constantFrom(1, 16, 37, 224),
    height: fc.constantFrom(1, 16, 32, 101),
    extra: fc.integer({ min: 0, max: 40 }),
    fraction: fc.double({ min: 0.01, max: 1, noNaN: true }),
    mode: fc.constantFrom("shortest-edge", "squash", "letterbox", "centre-crop"),
    filter,
  })
  .map(({ width, height, extra, fraction, mode, filter }): PixelInput => {
    const resize = {
      "shortest-edge": { mode: "shortest-edge", edge: Math.max(width, height) + extra },
      squash: { mode: "squash" },
      letterbox: { mode: "letterbox", fill: [1, 2, 3] },
      "centre-crop": { mode: "centre-crop", fraction },
    } as const satisfies Record<string, PixelInput["resize"]>;
    return { size: { width, height }, resize: resize[mode], filter } as PixelInput;
  });

const smallSize = { width: 56, height: 40 };

/** Sides of images: any, a single pixel, and about the edge of most models. */
const side = fc.oneof(
  fc.integer({ min: 1, max: 400 }),
  fc.constantFrom(1, 2, 223, 224, 225, 255, 256, 257),
);

test("the kernel resamples any input like the reference, bit for bit", () => {
  fc.assert(
    fc.property(
      fc.tuple(side, side),
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 8 }),
      input,
      fc.integer(),
      fc.boolean(),
      ([width, height], channels, orientation, input, seed, alpha) => {
        const hasAlpha = alpha && channels % 2 === 0;
        expectSame(noise(width, height, channels, seed), orientation, input, hasAlpha);
      },
    ),
    { numRuns: 200 },
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
  for (const orientation of [1, 3, 6, 8]) expectSame(image, orientation, squareInput(16), false);
});

test("TensorFlow's filter differs from its float32 arithmetic by at most 1.01 levels", () => {
  fc.assert(
    fc.property(side, side, fc.integer(), (width, height, seed) => {
      const input: PixelInput = { ...towerOf("efficientnet-lite0").input, size: smallSize };
      const image = noise(width, height, 3, seed);
      const plan = planOf({ ...image, orientation: 1 }, input);
      const pixels = resampler.resample(rowsOf(image, plan, resampler), plan, false);
      const expected = resizedByTensorFlow(centre(image, 0.875), smallSize);
      const largest = expected.reduce(
        (most, value, at) => Math.max(most, Math.abs(value - pixels[at]!)),
        0,
      );
      expect(largest).toBeLessThanOrEqual(1.01);
    }),
    { numRuns: 50 },
  );
});

test("rows that no result row needs are skipped", () => {
  const input: PixelInput = { ...squareInput(16), filter: "tensorflow-bilinear" };
  const image = noise(1500, 1100, 3, 8);
  for (const orientation of [1, 6, 8]) expectSame(image, orientation, input, false);
});

test("stale data in the kernel's memory does not affect the next image", () => {
  expectSame(noise(900, 700, 4, 3), 1, vitB32.input, true);
  expectSame(noise(50, 60, 1, 4), 1, vitB32.input, false);
  expectSame(noise(51, 40, 2, 5), 6, vitB32.input, true);
});

test("the vertical pass comes first if the height shrinks by more than twice as many pixels as the width", () => {
  const siglip2 = towerOf("siglip2-base-224").input;
  const isRowsFirst = (width: number, height: number, orientation = 1) =>
    planOf({ width, height, orientation }, siglip2).isRowsFirst;
  expect(isRowsFirst(220, 300)).toBe(true);
  expect(isRowsFirst(300, 220)).toBe(false);
  expect([isRowsFirst(324, 424), isRowsFirst(324, 425)]).toEqual([false, true]);
  expect([isRowsFirst(300, 220, 6), isRowsFirst(220, 300, 6)]).toEqual([false, true]);
  expectSame(noise(220, 300, 3, 9), 1, siglip2, false);
  expectSame(noise(300, 220, 4, 10), 6, siglip2, true);
});

test("a very long image needs only the cropped part", () => {
  const { source } = planOf({ width: 440_000, height: 220, orientation: 1 }, vitB32.input);
  expect(source).toMatchObject({ top: 0, height: 220 });
  expect(source.width).toBeLessThan(224 + 4);
});

test("a rotated image needs the same as an upright one", () => {
  const upright = planOf({ width: 600, height: 400, orientation: 1 }, vitB32.input).source;
  const onSide = planOf({ width: 400, height: 600, orientation: 6 }, vitB32.input).source;
  expect(onSide).toEqual({
    left: upright.top,
    top: upright.left,
    width: upright.height,
    height: upright.width,
  });
});
