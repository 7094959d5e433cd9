import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { readImages } from "./read-images.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-bench-images-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function folderOf(files: Readonly<Record<string, string | Buffer>>): string {
  const made = mkdtempSync(join(folder, "images-"));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(made, name), text);
  return made;
}

const image = await picture("jpeg", { width: 16, height: 16 });
const { input } = imageTowerOf(defaultModel);

test("the images of a folder are read in name order, ignoring other files", async () => {
  const made = folderOf({
    "b.JPG": image,
    "a.webp": image,
    "notes.txt": "x",
    "c.png": image,
  });
  const images = await readImages(made, input);
  expect(images.map(({ name, contentType }) => [name, contentType])).toEqual([
    ["a.webp", "image/webp"],
    ["b.JPG", "image/jpeg"],
    ["c.png", "image/png"],
  ]);
});

test("at most 64 images are read", async () => {
  const names = Array.from({ length: 70 }, (_, i) => `${100 + i}.jpg`);
  const made = folderOf(Object.fromEntries(names.map((name) => [name, image])));
  const images = await readImages(made, input);
  expect(images.map(({ name }) => name)).toEqual(names.slice(0, 64));
});

test("an invalid image file is rejected by name", async () => {
  const made = folderOf({ "a.jpg": image, "b.jpg": "text" });
  await expect(readImages(made, input)).rejects.toThrow(
    `--images: ${join(made, "b.jpg")} is not a JPEG, PNG or WebP file`,
  );
});

test("an unreadable folder is rejected", async () => {
  const missing = join(folder, "missing");
  await expect(readImages(missing, input)).rejects.toThrow(`--images: ${missing} does not exist`);
});
