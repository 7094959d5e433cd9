import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Sharp } from "sharp";
import { expect, test } from "vitest";
import { reasonOf } from "../search/report.ts";
import { openPhoto } from "./open-photo.ts";
import { readPhoto } from "./read-photo.ts";
import { picture, temporaryFolder } from "./test-photos.ts";

/** `picture(3, 480, 320)` on its side, with the rotation for display and a time, encoded by pillow-heif 1.8.1 with quality 40. */
const heicFile = fileURLToPath(new URL("test-photo.heic", import.meta.url));
const original = () => picture(3, 480, 320);

const pixelsOf = (image: Sharp) => image.flatten().resize(24, 16).raw().toBuffer();

test("decodes HEIC in the orientation for display", async () => {
  const { image, width, height } = await openPhoto(readFileSync(heicFile));
  expect([width, height]).toEqual([480, 320]);
  const [found, expected] = await Promise.all([pixelsOf(image), pixelsOf(original())]);
  expect(found.length).toBe(expected.length);
  const differences = found.map((value, i) => Math.abs(value - expected[i]!));
  expect(Math.max(...differences)).toBeLessThan(24);
});

test("reads resolution, time and hash of HEIC", async () => {
  const { hash: _, sha256, ...facts } = await readPhoto(heicFile);
  expect(sha256).toMatch(/^[0-9a-f]{64}$/);
  expect(facts).toEqual({
    format: "heic",
    width: 480,
    height: 320,
    takenAt: "2024-05-01T12:30:00",
  });
});

test("rejects damaged HEIC with one line", async () => {
  const file = join(temporaryFolder(), "cut.heic");
  writeFileSync(file, readFileSync(heicFile).subarray(0, 900));
  const error: unknown = await readPhoto(file).catch((problem: unknown) => problem);
  expect(reasonOf(error)).toMatch(/^Input buffer has corrupt header: .+$/);
});

test("reads the displayed resolution and the time of the camera", async () => {
  const file = join(temporaryFolder(), "upright.jpg");
  await picture(1, 96, 64)
    .withExif({ IFD2: { DateTimeOriginal: "2024:05:01 12:30:00" } })
    .withMetadata({ orientation: 6 })
    .jpeg()
    .toFile(file);
  expect(await readPhoto(file)).toMatchObject({
    width: 64,
    height: 96,
    takenAt: "2024-05-01T12:30:00",
  });
});
