import { readdirSync, readFileSync, statSync } from "node:fs";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import sharp from "sharp";
import { expect, test } from "vitest";

interface Sample {
  readonly file: string;
  readonly bytes: number;
  readonly width: number;
  readonly height: number;
  readonly orientation?: number;
  readonly nearDuplicateOf?: string;
}

const path = (file: string) => fileURLToPath(new URL(file, import.meta.url));
const { images } = JSON.parse(readFileSync(path("samples.json"), "utf8")) as {
  readonly images: readonly Sample[];
};
const formats: Readonly<Record<string, string>> = {
  ".jpg": "jpeg",
  ".png": "png",
  ".webp": "webp",
};

test("samples.json lists every image, and together they are under 1 MB", () => {
  const files = readdirSync(path(".")).filter((name) => formats[extname(name)] !== undefined);
  expect(images.map(({ file }) => file).sort()).toEqual(files.sort());
  expect(images.length).toBeGreaterThanOrEqual(20);
  expect(images.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThan(1_000_000);
});

test.each(images)("$file has the properties in samples.json", async (sample) => {
  expect(statSync(path(sample.file)).size).toBe(sample.bytes);
  const meta = await sharp(path(sample.file)).metadata();
  expect(meta.format).toBe(formats[extname(sample.file)]);
  expect(meta.orientation ?? 1).toBe(sample.orientation ?? 1);
  expect(meta.autoOrient).toEqual({ width: sample.width, height: sample.height });
});

test("the samples include every kind that decoders often get wrong", async () => {
  const all = await Promise.all(images.map(({ file }) => sharp(path(file)).metadata()));
  const has = (kind: (meta: (typeof all)[number]) => boolean) => all.some(kind);
  for (const orientation of [3, 6, 8]) expect(has((m) => m.orientation === orientation)).toBe(true);
  expect(has((m) => m.space === "cmyk" && m.channels === 4)).toBe(true);
  expect(has((m) => m.space === "b-w" && m.channels === 1)).toBe(true);
  expect(has((m) => m.hasAlpha === true)).toBe(true);
  expect(has((m) => m.isProgressive === true)).toBe(true);
  expect(has((m) => m.format === "webp")).toBe(true);
  expect(images.filter(({ bytes }) => bytes > 200_000 && bytes < 280_000)).toHaveLength(1);
});

test("near duplicates name another sample", () => {
  const pairs = images.filter(({ nearDuplicateOf }) => nearDuplicateOf !== undefined);
  expect(pairs.length).toBeGreaterThanOrEqual(4);
  for (const { file, nearDuplicateOf } of pairs) {
    expect(images.map((image) => image.file)).toContain(nearDuplicateOf);
    expect(nearDuplicateOf).not.toBe(file);
  }
});
