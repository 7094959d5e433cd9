import { readFileSync } from "node:fs";
import fc from "fast-check";
import sharp from "sharp";
import { describe, expect, test } from "vitest";
import { imageTypeOf, readImageHeader } from "./image-header.ts";
import { scansOf } from "./jpeg-header.mjs";
import golden from "./preprocess-golden.json" with { type: "json" };
import { picture } from "./test-images.ts";

const sample = (name: string) =>
  readFileSync(new URL(`../../model-tools/samples/${name}`, import.meta.url));

test.each(Object.keys(golden.openclip))(
  "reads the same properties of %s as libvips",
  async (name) => {
    const bytes = sample(name);
    const { width, height, orientation = 1, space } = await sharp(bytes).metadata();
    const colours = { srgb: "rgb", "b-w": "grey", cmyk: "cmyk" }[space as string];
    expect(readImageHeader(bytes)).toMatchObject({ width, height, orientation, colours });
  },
);

describe.each(["jpeg", "png", "webp"] as const)("of a %s", (format) => {
  test.each([1, 2, 3, 4, 5, 6, 7, 8])("reads orientation %i", async (orientation) => {
    const bytes = await sharp(await picture("png", { width: 33, height: 17 }))
      .withMetadata({ orientation })
      .toFormat(format)
      .toBuffer();
    expect(readImageHeader(bytes)).toMatchObject({
      type: format,
      width: 33,
      height: 17,
      orientation,
    });
  });

  test("never hangs and throws only a RangeError for truncated or changed files", async () => {
    const file = await sharp(await picture("png", { width: 33, height: 17 }))
      .withMetadata({ orientation: 6 })
      .toFormat(format)
      .toBuffer();
    const change = fc.tuple(fc.nat(file.length - 1), fc.nat(255));
    fc.assert(
      fc.property(fc.array(change, { maxLength: 8 }), fc.nat(file.length), (changes, length) => {
        const bytes = Buffer.from(file.subarray(0, length));
        for (const [at, value] of changes) if (at < length) bytes[at] = value;
        try {
          readImageHeader(bytes);
        } catch (error) {
          expect(error).toBeInstanceOf(RangeError);
        }
      }),
      { numRuns: 2_000 },
    );
  });
});

describe("the first EXIF block counts", () => {
  const tiff = (orientation: number) =>
    Buffer.from(
      `49492a000800000001001201030001000000${Buffer.of(orientation).toString("hex")}00000000000000`,
      "hex",
    );
  const size = (bytes: number, length: number) =>
    Buffer.from([...Array(length).keys()].map((at) => (bytes >> (8 * at)) & 0xff));
  const withBlocks = {
    jpeg: (file: Buffer, blocks: readonly Buffer[]) =>
      Buffer.concat([
        file.subarray(0, 2),
        ...blocks.flatMap((block) => [
          Buffer.from("ffe1", "hex"),
          size(block.length + 8, 2).reverse(),
          Buffer.from("Exif\0\0"),
          block,
        ]),
        file.subarray(2),
      ]),
    png: (file: Buffer, blocks: readonly Buffer[]) =>
      Buffer.concat([
        file.subarray(0, 33),
        ...blocks.flatMap((block) => [
          size(block.length, 4).reverse(),
          Buffer.from("eXIf"),
          block,
          Buffer.alloc(4),
        ]),
        file.subarray(33),
      ]),
    webp: (file: Buffer, blocks: readonly Buffer[]) =>
      Buffer.concat([
        file.subarray(0, file.indexOf("EXIF")),
        ...blocks.flatMap((block) => [Buffer.from("EXIF"), size(block.length, 4), block]),
      ]),
  };
  test.each(["jpeg", "png", "webp"] as const)("of a %s", async (format) => {
    const plain = sharp(await picture("png", { width: 33, height: 17 }));
    // the WebP has the extended format, which begins with VP8X
    const file = await (format === "webp" ? plain.withMetadata({ orientation: 3 }) : plain)
      .toFormat(format)
      .toBuffer();
    const orientationOf = (...blocks: readonly Buffer[]) =>
      readImageHeader(withBlocks[format](file, blocks))?.orientation;
    expect(orientationOf(tiff(6))).toBe(6);
    expect(orientationOf(tiff(6), tiff(1))).toBe(6);
    expect(orientationOf(tiff(1), tiff(6))).toBe(1);
    expect(orientationOf(tiff(9), tiff(6))).toBe(1);
    expect(orientationOf(Buffer.from("no TIFF file"), tiff(6))).toBe(1);
  });
});

test("counts the scans of a progressive JPEG", async () => {
  const image = sharp(await picture("png"));
  const progressive = await image.clone().jpeg({ progressive: true }).toBuffer();
  expect(readImageHeader(progressive)?.hasScans).toBe(true);
  expect(scansOf(progressive)).toBeGreaterThan(5);
  const sequential = await image.jpeg().toBuffer();
  expect(readImageHeader(sequential)?.hasScans).toBe(false);
  // the first scan contains one component of three: more scans must follow
  const scan = sequential.indexOf("\xff\xda", 0, "latin1");
  sequential[scan + 4] = 1;
  const more = Array.from({ length: 8 }, () => sequential.subarray(scan, -2));
  const all = Buffer.concat([sequential, ...more]);
  expect(readImageHeader(all)?.hasScans).toBe(true);
  expect(scansOf(all)).toBe(9);
});

test("rejects a header of padding without reading all of it", () => {
  for (const byte of [0xff, 0]) {
    const bytes = Buffer.concat([Buffer.from("ffd8ff", "hex"), Buffer.alloc(64_000_000, byte)]);
    const startedAt = performance.now();
    expect(() => readImageHeader(bytes)).toThrow("no end of the header");
    expect(performance.now() - startedAt).toBeLessThan(50);
  }
});

test("rejects an endless header", async () => {
  const [start, end] = [Buffer.from("ffd8ff", "hex"), await picture("jpeg")];
  const parts = Buffer.alloc(4 * 200_000, Buffer.from("ffe00002", "hex"));
  const bytes = Buffer.concat([start.subarray(0, 2), parts, end.subarray(2)]);
  expect(() => readImageHeader(bytes)).toThrow(RangeError);
  const filled = Buffer.concat([start, Buffer.alloc(200_000, 0xff), end.subarray(3)]);
  expect(() => readImageHeader(filled)).toThrow(RangeError);
});

test("detects the file type from its first bytes", async () => {
  for (const format of ["jpeg", "png", "webp"] as const) {
    expect(imageTypeOf(await picture(format, { width: 1, height: 1 }))).toBe(format);
  }
  expect(imageTypeOf(Buffer.from("BM"))).toBeUndefined();
  expect(readImageHeader(Buffer.from("GIF89a"))).toBeUndefined();
});
