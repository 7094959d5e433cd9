import sharp from "sharp";
import { expect, test } from "vitest";
import { loadImages, makeLoadImages } from "./load-images.ts";

test("creates different JPEG files of the requested size, deterministically", async () => {
  const kind = { ...loadImages.thumbnail, count: 10 };
  const [first, second] = [await makeLoadImages(kind), await makeLoadImages(kind)];
  expect(first).toEqual(second);
  expect(new Set(first.map((file) => file.toString("base64"))).size).toBe(10);
  for (const file of first) {
    expect(await sharp(file).metadata()).toMatchObject({ format: "jpeg", width: 320, height: 240 });
    expect(file.length).toBeGreaterThan(8_500);
    expect(file.length).toBeLessThan(kind.bytes.max);
  }
});
