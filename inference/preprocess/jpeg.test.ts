import { readdirSync, readFileSync } from "node:fs";
import fc from "fast-check";
import sharp from "sharp";
import { expect, test } from "vitest";
import { readImageHeader } from "./image-header.ts";
import { compileKernel, ImageKernel } from "./image-kernel.mjs";
import type { ResizePlan } from "./image-types.ts";
import { JpegDecoder } from "./jpeg.mjs";
import { Resampler, rowsOf } from "./resample.mjs";
import { planOf } from "./resample-plan.mjs";
import { picture } from "./test-images.ts";
import { squareInput } from "./test-inputs.ts";
import { type JpegShape, randomJpeg, randomNumbers } from "./test-jpeg.ts";

const kernel = new ImageKernel(compileKernel());
const decoder = new JpegDecoder(new Resampler(kernel));
const other = new Resampler(new ImageKernel(compileKernel()));

/**
 * Decodes in memory that another image could have left, twice: if a result depended on what was there before, the two would
 * differ.
 */
function decoded(bytes: Uint8Array, plan: ResizePlan): Uint8Array | undefined {
  const [first, second] = [0x5a, 0xff].map((left) => {
    kernel.bytes().fill(left, kernel.reserve({}).end);
    return decoder.resample(bytes, plan)?.pixels;
  });
  // faster than toEqual
  expect(Buffer.compare(second ?? Buffer.of(), first ?? Buffer.of())).toBe(0);
  return first;
}

/** Decodes with libvips and resizes with the kernel; `undefined` if libvips rejects the file. */
async function byLibvips(bytes: Buffer, plan: ResizePlan): Promise<Uint8Array | undefined> {
  const image = sharp(bytes, { failOn: "error", ignoreIcc: true });
  if (readImageHeader(bytes)?.colours === "grey") image.toColourspace("b-w");
  try {
    const { data, info } = await image.raw().toBuffer({ resolveWithObject: true });
    return other.resample(rowsOf({ data, ...info }, plan, other), plan, false);
  } catch {
    return undefined;
  }
}

/** Decodes with the kernel and with libvips; both are resized by the kernel. */
async function bothOf(bytes: Buffer, orientation = 1, side = 224) {
  const plan = planOf({ ...readImageHeader(bytes)!, orientation }, squareInput(side));
  return { pixels: decoded(bytes, plan), reference: (await byLibvips(bytes, plan))! };
}

async function expectSame(bytes: Buffer, orientation?: number, side?: number): Promise<void> {
  const { pixels, reference } = await bothOf(bytes, orientation, side);
  expect(pixels, "it is left to libvips").toBeDefined();
  expect(Buffer.compare(pixels!, reference)).toBe(0);
}

const shapes: fc.Arbitrary<JpegShape> = fc.record({
  width: fc.integer({ min: 5, max: 200 }),
  height: fc.integer({ min: 1, max: 200 }),
  sampling: fc.constantFrom([0x11], [0x11, 0x11, 0x11], [0x21, 0x11, 0x11], [0x22, 0x11, 0x11]),
  tables: fc.integer({ min: 2, max: 8 }),
  frame: fc.constantFrom("SOF0", "SOF1"),
  interval: fc.constantFrom(0, 0, 1, 2, 5, 7, 100),
  density: fc.constantFrom(0, 1, 4, 20, 64),
  seed: fc.integer(),
});
const orientations = fc.integer({ min: 1, max: 8 });
const sides = fc.constantFrom(16, 224);

test("equals libjpeg bit for bit for common subsamplings, sizes, restart intervals and numbers of tables", async () => {
  await fc.assert(
    fc.asyncProperty(shapes, orientations, sides, (shape, orientation, side) =>
      expectSame(randomJpeg(shape), orientation, side),
    ),
    { numRuns: 250 },
  );
});

const factors = fc
  .tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 4 }))
  .map(([across, down]) => across * 16 + down);
/** At most ten blocks in an MCU (ITU-T T.81, B.2.3). */
const samplings = fc
  .oneof(fc.tuple(factors), fc.tuple(factors, factors, factors))
  .filter(
    (all) =>
      all.length === 1 || all.reduce((sum, factor) => sum + (factor >> 4) * (factor & 15), 0) <= 10,
  );

test("with any sampling factors and one to eight tables, equals libjpeg or is left to libvips", async () => {
  const shape = shapes.chain((usual) =>
    fc.record({ sampling: samplings, tables: fc.integer({ min: 1, max: 8 }) }).map((rare) => ({
      ...usual,
      ...rare,
    })),
  );
  await fc.assert(
    fc.asyncProperty(shape, async (shape) => {
      const { pixels, reference } = await bothOf(randomJpeg(shape));
      if (pixels !== undefined) expect(Buffer.compare(pixels, reference)).toBe(0);
    }),
    { numRuns: 150 },
  );
});

test.each<Partial<JpegShape>>([
  { tables: 2 },
  { tables: 8, frame: "SOF1" },
  { tables: 6, interval: 0 },
  { sampling: [0x11], interval: 1 },
])("cut short at any byte (%o), it is left to libvips, with or without an end", async (changes) => {
  const shape = { ...usual, width: 40, height: 24, density: 4, ...changes };
  const file = randomJpeg(shape);
  const plan = planOf({ ...shape, orientation: 1 }, squareInput(16));
  expect(decoded(file, plan)).toEqual(await byLibvips(file, plan));
  for (let length = 0; length < file.length; length++) {
    const part = file.subarray(0, length);
    expect(decoded(part, plan)).toBeUndefined();
    const ended = Buffer.concat([part, Buffer.from([0xff, 0xd9])]);
    const pixels = decoded(ended, plan);
    if (pixels !== undefined) expect(await byLibvips(ended, plan)).toEqual(pixels);
  }
});

test("equals libjpeg bit for bit for a photo of any quality", async () => {
  const size = fc.integer({ min: 5, max: 500 });
  await fc.assert(
    fc.asyncProperty(
      fc.record({ width: size, height: size, seed: fc.integer({ min: 1, max: 9 }) }),
      fc.record({
        quality: fc.integer({ min: 1, max: 100 }),
        chromaSubsampling: fc.constantFrom("4:2:0", "4:4:4"),
        optimiseCoding: fc.boolean(),
      }),
      fc.boolean(),
      orientations,
      async (size, options, grey, orientation) => {
        const image = sharp(await picture("png", size));
        if (grey) image.toColourspace("b-w");
        await expectSame(await image.jpeg(options).toBuffer(), orientation);
      },
    ),
    { numRuns: 60 },
  );
});

/** Returns the means of squares of samples. */
function shrunk(data: Uint8Array, width: number, channels: number, by: number): Uint8Array {
  const columns = width / by;
  const sums = new Float64Array(data.length / by ** 2);
  for (const [at, value] of data.entries()) {
    const [pixel, channel] = [Math.floor(at / channels), at % channels];
    const [x, y] = [pixel % width, Math.floor(pixel / width)];
    sums[(Math.floor(y / by) * columns + Math.floor(x / by)) * channels + channel]! += value;
  }
  return Uint8Array.from(sums, (sum) => Math.round(sum / by ** 2));
}

test.each([
  [2, "4:2:0"],
  [4, "4:2:0"],
  [8, "4:2:0"],
  [2, "4:4:4"],
  [4, "4:4:4"],
  [8, "4:4:4"],
])(
  "decoded at 1/%i of each side, %s, samples are the means of those they stand for",
  async (reduction, chromaSubsampling) => {
    const side = 64 * reduction;
    const smooth = await sharp(await picture("png", { width: 32, height: 32 }))
      .resize(side, side)
      .jpeg({ quality: 95, chromaSubsampling })
      .toBuffer();
    const { data, info } = await sharp(smooth).raw().toBuffer({ resolveWithObject: true });
    // as large as the decoded image, so that nothing is resized afterwards
    const plan = planOf({ width: side, height: side, orientation: 1 }, squareInput(64), reduction);
    const { pixels } = decoder.resample(smooth, plan)!;
    const means = shrunk(data, info.width, 3, reduction);
    const mean =
      pixels.reduce((sum, value, at) => sum + Math.abs(value - means[at]!), 0) / pixels.length;
    expect(mean).toBeLessThan(2);
  },
);

test("decodes an image with unusual chroma at full size", () => {
  const shape = {
    width: 1000,
    height: 960,
    sampling: [0x21, 0x11, 0x11],
    interval: 0,
    density: 4,
    seed: 3,
  };
  const bytes = randomJpeg(shape);
  expect(
    decoder.resample(bytes, planOf({ ...shape, orientation: 1 }, squareInput(224), 2)),
  ).toBeUndefined();
  expect(
    decoder.resample(bytes, planOf({ ...shape, orientation: 1 }, squareInput(224))),
  ).toBeDefined();
});

const samples = new URL("../../model-tools/samples/", import.meta.url);
test.each(readdirSync(samples).filter((name) => name.endsWith(".jpg")))(
  "%s is what libjpeg makes of it, or is left to libvips",
  async (name) => {
    for (const orientation of [1, 6]) {
      const { pixels, reference } = await bothOf(readFileSync(new URL(name, samples)), orientation);
      if (pixels !== undefined) expect(Buffer.compare(pixels, reference)).toBe(0);
    }
  },
);

const usual: JpegShape = {
  width: 100,
  height: 80,
  sampling: [0x22, 0x11, 0x11],
  interval: 3,
  density: 20,
  seed: 1,
};

test.each([
  ["a subsampling that is rare", randomJpeg({ ...usual, sampling: [0x12, 0x11, 0x11] })],
  ["four luma columns to one of chroma", randomJpeg({ ...usual, sampling: [0x41, 0x11, 0x11] })],
  ["too few columns to upsample", randomJpeg({ ...usual, width: 4 })],
  ["an image that ends early", randomJpeg(usual).subarray(0, -2)],
  ["data behind the last block", changed(randomJpeg(usual), -2, 0x12)],
  ["a restart out of order", changedMarker(randomJpeg(usual), 0xd1, 0xd3)],
  ["no image", Buffer.from([0xff, 0xd8, 0xff, 0xd9])],
  [
    "a file so large that its memory would not be freed",
    Buffer.concat([randomJpeg(usual), Buffer.alloc(2 ** 24)]),
  ],
])("leaves to libvips %s", (_, bytes) => {
  expect(
    decoder.resample(bytes, planOf({ ...usual, orientation: 1 }, squareInput(224))),
  ).toBeUndefined();
});

/** Returns the file with an additional byte, or another marker in the data. */
function changed(bytes: Buffer, at: number, byte: number): Buffer {
  return Buffer.concat([bytes.subarray(0, at), Buffer.from([byte]), bytes.subarray(at)]);
}

function changedMarker(bytes: Buffer, from: number, to: number): Buffer {
  const copy = Buffer.from(bytes);
  copy[copy.indexOf(Buffer.from([0xff, from])) + 1] = to;
  return copy;
}

test.each([
  ["progressive", { progressive: true }],
  ["CMYK", {}],
])("leaves to libvips what is %s", async (kind, options) => {
  const image = sharp(await picture("png"));
  if (kind === "CMYK") image.toColourspace("cmyk");
  const bytes = await image.jpeg(options).toBuffer();
  const plan = planOf({ width: 320, height: 240, orientation: 1 }, squareInput(224));
  expect(decoder.resample(bytes, plan)).toBeUndefined();
});

test("leaves a file with another size than in its header to libvips", async () => {
  const bytes = await picture("jpeg");
  const plan = planOf({ width: 300, height: 240, orientation: 1 }, squareInput(224));
  expect(decoder.resample(bytes, plan)).toBeUndefined();
});

test("a damaged file is left to libvips or decoded, and does not affect the next one", async () => {
  // a square, because its first block, which could contain stale data, is not cropped
  const square = { ...usual, height: usual.width };
  const file = randomJpeg(square);
  const plan = planOf({ ...square, orientation: 1 }, squareInput(224));
  const expected = decoder.resample(file, plan)!.pixels;
  const random = randomNumbers(5);
  let left = 0;
  for (let run = 0; run < 2_000; run++) {
    const bytes = Buffer.from(file);
    for (let change = random() % 4; change >= 0; change--) {
      bytes[random() % bytes.length] = random();
    }
    const end = random() % 4 === 0 ? random() % bytes.length : bytes.length;
    if (decoder.resample(bytes.subarray(0, end), plan) === undefined) left++;
    expect(Buffer.compare(decoder.resample(file, plan)!.pixels, expected)).toBe(0);
  }
  expect(left).toBeGreaterThan(1_000);
});
