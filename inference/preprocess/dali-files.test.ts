import { readFileSync } from "node:fs";
import sharp from "sharp";
import { expect, test } from "vitest";
import { isForDali } from "./dali-files.ts";
import { picture } from "./test-images.ts";

const sample = (name: string) =>
  readFileSync(new URL(`../../model-tools/samples/${name}`, import.meta.url));
const maxPixels = 40_000_000;
const photo = sample("sunset.jpg");

/** The photo with another byte at an offset after its start of frame. */
async function withFrameByte(offset: number, value: number): Promise<Buffer> {
  const file = await picture("jpeg");
  file[file.indexOf("\xff\xc0", 0, "latin1") + offset] = value;
  return file;
}

test.each<readonly [string, () => Promise<Uint8Array>]>([
  ["a baseline JPEG", async () => photo],
  ["an oriented JPEG", async () => sample("flower-exif-6.jpg")],
  ["a grey JPEG", async () => sample("terrain-grey.jpg")],
  [
    "a progressive JPEG",
    async () =>
      sharp(await picture("png"))
        .jpeg({ progressive: true })
        .toBuffer(),
  ],
  ["a JPEG with data after its end", async () => Buffer.concat([photo, Buffer.alloc(60_000)])],
])("forwards %s", async (_name, file) => {
  expect(isForDali(await file(), maxPixels)).toBe(true);
});

test.each<readonly [string, () => Promise<Uint8Array>]>([
  ["a CMYK JPEG", async () => sample("tartan-cmyk.jpg")],
  ["a PNG", () => picture("png")],
  ["a WebP", () => picture("webp")],
  ["a truncated JPEG", async () => photo.subarray(0, photo.length >> 1)],
  ["a JPEG that ends in its header", async () => photo.subarray(0, 100)],
  ["a JPEG with 12 bits per sample", () => withFrameByte(4, 12)],
  ["an arithmetic-coded JPEG", () => withFrameByte(1, 0xc9)],
  ["an empty file", async () => new Uint8Array()],
])("keeps %s", async (_name, file) => {
  expect(isForDali(await file(), maxPixels)).toBe(false);
});

test("keeps an image above the pixel limit", () => {
  expect(isForDali(photo, 320 * 240 - 1)).toBe(false);
  expect(isForDali(photo, maxPixels)).toBe(true);
});
