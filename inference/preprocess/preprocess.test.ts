import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import sharp, { type Sharp } from "sharp";
import { describe, expect, test } from "vitest";
import { imageBytes } from "../../contract/model-shapes.ts";
import { normalised } from "./image-tensor.ts";
import { createPreprocessor, ImageError, preprocess } from "./preprocess.ts";
import golden from "./preprocess-golden.json" with { type: "json" };
import { picture } from "./test-images.ts";
import { squareInput, towerOf, vitB32 } from "./test-inputs.ts";
import { slowProgressiveJpeg } from "./test-progressive.ts";

const { input } = vitB32;
const pixelBytes = imageBytes(vitB32, "uint8")!;
const imageSide = input.size.width;
const limits = { maxPixels: 1_000_000 };
const red = { r: 255, g: 0, b: 0 };
const blue = { r: 0, g: 0, b: 255 };

function uniformImage(width: number, height: number, background: object = red): Sharp {
  return sharp({ create: { width, height, channels: 3, background } });
}

/** Image with a blue square of 10 × 10 pixels in its top left corner. */
function imageWithCorner(width: number, height: number): Sharp {
  const square = { create: { width: 10, height: 10, channels: 3 as const, background: blue } };
  return uniformImage(width, height).composite([{ input: square, left: 0, top: 0 }]);
}

/** Returns the 8-bit colour of the model input at a position. */
function colourAt(values: Float32Array, x: number, y: number): readonly number[] {
  const { mean, std } = input;
  return [0, 1, 2].map((channel) => {
    const value = values[channel * imageSide ** 2 + y * imageSide + x]!;
    return Math.round((value * std[channel]! + mean[channel]!) * 255) + 0; // not -0
  });
}

async function colour(bytes: Uint8Array, x = 112, y = 112): Promise<readonly number[]> {
  return colourAt(normalised(await preprocess(bytes, input, limits), input), x, y);
}

function sample(name: string): Buffer {
  return readFileSync(new URL(`../../model-tools/samples/${name}`, import.meta.url));
}

function sha256Of(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

test("returns planes of red, green and blue with CLIP's mean and deviation", async () => {
  const bytes = await uniformImage(300, 200, { r: 255, g: 0, b: 51 }).png().toBuffer();
  const values = normalised(await preprocess(bytes, input, limits), input);
  expect(values).toHaveLength(pixelBytes);
  const plane = imageSide ** 2;
  expect(values[0]).toBeCloseTo((1 - 0.48145466) / 0.26862954, 6);
  expect(values[plane]).toBeCloseTo((0 - 0.4578275) / 0.26130258, 6);
  expect(values[3 * plane - 1]).toBeCloseTo((0.2 - 0.40821073) / 0.27577711, 6);
});

/** Model with the image input of each family in preprocess-golden.json. */
const goldenInputs = {
  openclip: vitB32.input,
  siglip2: towerOf("siglip2-base-224").input,
  dinov2: towerOf("dinov2-small").input,
  mobileclip2: towerOf("mobileclip2-s0").input,
};

test.each(Object.entries(golden))(
  "%s: the samples equal Pillow's output, bit for bit",
  async (family, hashes) => {
    const input = goldenInputs[family as keyof typeof golden];
    for (const [name, hash] of Object.entries(hashes)) {
      const pixels = await preprocess(sample(name), input, { maxPixels: 1e7 });
      expect(sha256Of(pixels), name).toBe(hash);
    }
  },
);

test("16-bit grey keeps the upper 8 bits of every value", async () => {
  const levels = Uint16Array.from({ length: 256 * 256 }, (_, value) => value);
  const raw = { width: 256, height: 256, channels: 1 } as const;
  const file = await sharp(levels, { raw }).toColourspace("grey16").png().toBuffer();
  const pixels = await preprocess(file, squareInput(256), { maxPixels: 1e7 });
  expect(pixels).toEqual(Uint8Array.from({ length: 3 * 65_536 }, (_, at) => Math.floor(at / 768)));
});

test("the result does not depend on reused memory", async () => {
  const preprocessor = createPreprocessor({ maxPixels: 1e7, threads: 1 });
  try {
    preprocessor.recycle(new Uint8Array(pixelBytes).fill(0xaa));
    for (const [name, hash] of Object.entries(golden.openclip)) {
      const pixels = await preprocessor.run(sample(name), input);
      expect(sha256Of(pixels), name).toBe(hash);
      preprocessor.recycle(pixels);
    }
  } finally {
    await preprocessor.close();
  }
});

describe("geometry", () => {
  test("keeps the centre of a wide image", async () => {
    // left third red, middle third blue, right third red
    const middle = { create: { width: 300, height: 300, channels: 3 as const, background: blue } };
    const image = uniformImage(900, 300).composite([{ input: middle, left: 300, top: 0 }]);
    const bytes = await image.png().toBuffer();
    expect(await colour(bytes, 4, 112)).toEqual([0, 0, 255]);
    expect(await colour(bytes, 219, 112)).toEqual([0, 0, 255]);
  });

  test("does not crop an image with nearly equal sides", async () => {
    const bytes = await imageWithCorner(225, 224).png().toBuffer();
    // (225 - 224) / 2 = 0.5 is rounded to the even 0, as Python does: the first column stays
    expect(await colour(bytes, 9, 0)).toEqual([0, 0, 255]);
    expect(await colour(bytes, 10, 0)).toEqual([255, 0, 0]);
  });

  test("enlarges a small image", async () => {
    const bytes = await imageWithCorner(20, 20).png().toBuffer();
    expect(await colour(bytes, 50, 50)).toEqual([0, 0, 255]);
    expect(await colour(bytes, 174, 50)).toEqual([255, 0, 0]);
  });

  test("accepts an image of one pixel", async () => {
    expect(await colour(await uniformImage(1, 1).png().toBuffer(), 223, 223)).toEqual([255, 0, 0]);
  });

  test.each([
    [20_000, 1],
    [1, 20_000],
    [2_500, 300],
  ])("takes an image of %i × %i", async (width, height) => {
    expect(await colour(await uniformImage(width, height).png().toBuffer())).toEqual([255, 0, 0]);
  });
});

/** Longest delay of timers during `work`, as a fraction of its duration. */
async function stallOnce(work: () => Promise<unknown>): Promise<number> {
  let [last, longest] = [performance.now(), 0];
  const startedAt = last;
  const timer = setInterval(() => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  }, 1);
  await work();
  clearInterval(timer);
  const now = performance.now();
  return Math.max(longest, now - last) / (now - startedAt);
}

/** Smallest of three measurements: work that blocks the event loop does so each time, other processes do not. */
async function stall(work: () => Promise<unknown>): Promise<number> {
  const stalls: number[] = [];
  for (let round = 0; round < 3; round++) stalls.push(await stallOnce(work));
  return Math.min(...stalls);
}

test("decoding a large image does not block the event loop", async () => {
  const bytes = await uniformImage(100_000, 220).ensureAlpha().png().toBuffer();
  expect(await stall(() => preprocess(bytes, input, { maxPixels: 1e8 }))).toBeLessThan(0.5);
});

test.each(["exact", "fast"] as const)(
  "%s: many large images leave the event loop free",
  async (mode) => {
    const bytes = await picture("jpeg", { width: 2000, height: 1500 });
    const options = { maxPixels: 4e7, mode };
    await preprocess(bytes, input, options); // a thread starts
    const all = () =>
      Promise.all(Array.from({ length: 8 }, () => preprocess(bytes, input, options)));
    expect(await stall(all)).toBeLessThan(0.4);
  },
);

describe("fast", () => {
  async function closeness(width: number, height: number, orientation: number) {
    const stored = await picture("jpeg", { width, height, seed: 2 });
    const bytes = await sharp(stored).withMetadata({ orientation }).jpeg().toBuffer();
    const [exact, fast] = await Promise.all(
      (["exact", "fast"] as const).map((mode) =>
        preprocess(bytes, input, { maxPixels: 1e7, mode }),
      ),
    );
    return { same: Buffer.compare(exact!, fast!) === 0, cosine: cosineOf(exact!, fast!) };
  }

  /** Cosine between model inputs. */
  function cosineOf(one: Uint8Array, other: Uint8Array): number {
    const [a, b] = [normalised(one, input), normalised(other, input)];
    const dot = (x: Float32Array, y: Float32Array) => x.reduce((sum, v, at) => sum + v * y[at]!, 0);
    return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
  }

  test.each([1, 2, 3, 4, 5, 6, 7, 8])("orientation %i is close to exact", async (orientation) => {
    const { same, cosine } = await closeness(1360, 1000, orientation);
    expect(same).toBe(false);
    expect(cosine).toBeGreaterThan(0.9996);
  });

  test.each([
    [1203, 901],
    [1207, 2000],
    [1799, 1803],
  ])("%i × %i, whose last blocks are in part beyond the edge, is close to exact", async (w, h) => {
    for (const orientation of [1, 3, 6]) {
      const { same, cosine } = await closeness(w, h, orientation);
      expect(same).toBe(false);
      expect(cosine).toBeGreaterThan(0.9996);
    }
  });

  test("is exact if the model input uses at least half of the samples", async () => {
    expect((await closeness(1200, 890, 1)).same).toBe(true);
  });
});

test("each image has its own memory", async () => {
  for (const side of [60, 600]) {
    const { buffer } = await preprocess(
      await picture("png", { width: side, height: side }),
      input,
      limits,
    );
    expect(buffer.byteLength).toBe(pixelBytes);
  }
});

describe("orientation", () => {
  // where the top left corner of the stored image ends up, for each value of the EXIF tag
  const corners = {
    1: [20, 20],
    2: [203, 20],
    3: [203, 203],
    4: [20, 203],
    5: [20, 20],
    6: [203, 20],
    7: [203, 203],
    8: [20, 203],
  };
  test.each(Object.entries(corners))("%s is applied", async (orientation, [x, y]) => {
    const square = await imageWithCorner(60, 60)
      .withMetadata({ orientation: Number(orientation) })
      .jpeg({ quality: 100, chromaSubsampling: "4:4:4" })
      .toBuffer();
    const [r, , b] = await colour(square, x, y);
    expect(b! - r!).toBeGreaterThan(200);
  });

  test("rotates a portrait before it is resized and cropped", async () => {
    const middle = { create: { width: 300, height: 300, channels: 3 as const, background: blue } };
    const bytes = await uniformImage(900, 300)
      .composite([{ input: middle, left: 300, top: 0 }])
      .withMetadata({ orientation: 6 })
      .png()
      .toBuffer();
    expect(await colour(bytes, 112, 4)).toEqual([0, 0, 255]);
    expect(await colour(bytes, 112, 219)).toEqual([0, 0, 255]);
  });
});

describe("colours", () => {
  test("grey is expanded to three channels", async () => {
    const grey = uniformImage(50, 50, { r: 90, g: 90, b: 90 }).toColourspace("b-w");
    expect(await colour(await grey.png().toBuffer())).toEqual([90, 90, 90]);
  });

  test("16 bits per channel are reduced to 8", async () => {
    const deep = uniformImage(50, 50, { r: 200, g: 100, b: 50 }).toColourspace("rgb16");
    expect(await colour(await deep.png().toBuffer())).toEqual([200, 100, 50]);
  });

  test("the colour profile of a file is ignored", async () => {
    const wide = await uniformImage(50, 50, { r: 200, g: 100, b: 50 })
      .withIccProfile("p3")
      .png()
      .toBuffer();
    const { data } = await sharp(wide, { ignoreIcc: true })
      .raw()
      .toBuffer({ resolveWithObject: true });
    expect(await colour(wide)).toEqual([...data.subarray(0, 3)]);
    expect((await sharp(wide).metadata()).icc).toBeDefined();
    expect(data[0]).not.toBe(200); // the file's own numbers differ from what a screen shows
  });

  test("an animation is reduced to its first frame", async () => {
    const frames = Buffer.concat([
      await uniformImage(40, 40).raw().toBuffer(),
      await uniformImage(40, 40, blue).raw().toBuffer(),
    ]);
    const animation = await sharp(frames, {
      raw: { width: 40, height: 80, channels: 3, pageHeight: 40 },
    })
      .webp({ lossless: true, loop: 0 })
      .toBuffer();
    expect((await sharp(animation).metadata()).pages).toBe(2);
    expect(await colour(animation)).toEqual([255, 0, 0]);
  });
});

describe("rejects", () => {
  async function rejection(bytes: Uint8Array, maxPixels = limits.maxPixels): Promise<ImageError> {
    const error: unknown = await preprocess(bytes, input, { maxPixels }).then(
      () => expect.fail("it was read"),
      (reason) => reason,
    );
    expect(error).toBeInstanceOf(ImageError);
    return error as ImageError;
  }

  test("an image with more pixels than the limit, before it is decoded", async () => {
    const { code, message } = await rejection(
      await uniformImage(101, 100).png().toBuffer(),
      10_000,
    );
    expect(code).toBe("too_large");
    expect(message).toBe("has 101 × 100 pixels, more than the limit of 10000");
  });

  test("not an image at the limit", async () => {
    const bytes = await uniformImage(100, 100).png().toBuffer();
    await expect(preprocess(bytes, input, { maxPixels: 10_000 })).resolves.toHaveLength(pixelBytes);
  });

  test.each([
    ["nothing", Buffer.alloc(0)],
    ["text", Buffer.from("hello")],
    ["GIF", Buffer.from("GIF89a and more")],
    ["SVG", Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>')],
    ["another RIFF file", Buffer.from("RIFF\0\0\0\0WAVEfmt ")],
  ])("%s as another type", async (_, bytes) => {
    expect((await rejection(bytes)).code).toBe("unsupported_media_type");
  });

  test.each(["jpeg", "png", "webp"] as const)("a truncated %s", async (format) => {
    const noise = Buffer.from(Array.from({ length: 30_000 }, (_, index) => (index * 7919) % 251));
    const file = await sharp(noise, { raw: { width: 100, height: 100, channels: 3 } })
      .toFormat(format)
      .toBuffer();
    for (const part of [0.1, 0.5, 0.95]) {
      const error = await rejection(file.subarray(0, Math.floor(file.length * part)));
      expect(error.code).toBe("undecodable_image");
      expect(error.message).toMatch(/^cannot be decoded: \S[^\n]*$/);
    }
  });

  test("a progressive JPEG with too many scans before it is decoded", async () => {
    const file = await uniformImage(64, 64).jpeg({ progressive: true }).toBuffer();
    const firstScan = file.subarray(file.indexOf("\xff\xda", 0, "latin1"), -2);
    const scans = Array.from({ length: 50 }, () => firstScan);
    const { code, message } = await rejection(Buffer.concat([file.subarray(0, -2), ...scans]));
    expect(code).toBe("undecodable_image");
    expect(message).toMatch(/^cannot be decoded: it is stored in \d+ scans, more than 100$/);
  });

  test("only a progressive JPEG that exceeds the deadline, and no other image", async () => {
    const preprocessor = createPreprocessor({
      maxPixels: 40_000_000,
      threads: 1,
      timeoutMs: 1_000,
    });
    const slow = preprocessor.run(slowProgressiveJpeg(6_300, 6_300, 100), input);
    const other = preprocessor.run(await uniformImage(64, 64).jpeg().toBuffer(), input);
    await expect(slow).rejects.toMatchObject({
      code: "undecodable_image",
      message: "cannot be decoded: decoding took longer than 1000 ms",
    });
    expect(await other).toHaveLength(pixelBytes);
    await preprocessor.close();
  });

  test.each(["png", "webp"] as const)(
    "a %s that declares more pixels than it has",
    async (format) => {
      const bytes = await uniformImage(30, 30).toFormat(format).toBuffer();
      bytes.writeUInt16BE(0x1010, { png: 18, webp: 26 }[format]);
      expect((await rejection(bytes, 40_000_000)).code).toBe("undecodable_image");
    },
  );

  test("a file with only an image header", async () => {
    const bytes = Buffer.concat([Buffer.from([0xff, 0xd8, 0xff]), Buffer.alloc(200, 7)]);
    expect((await rejection(bytes)).code).toBe("undecodable_image");
  });
});
