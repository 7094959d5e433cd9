import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { stack } from "../requests/infer.ts";
import { cycle, type Reference, readSamples } from "./reference.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-samples-"));
afterAll(() => rmSync(folder, { recursive: true }));
for (const name of [
  "a.jpg",
  "b.jpg",
  "c.jpg",
  "d.png",
  "e-exif-6.jpg",
  "f-cmyk.jpg",
  "g-grey.jpg",
  "notes.txt",
]) {
  writeFileSync(join(folder, name), name);
}

test("special image kinds are chosen first, then others by name", () => {
  expect(readSamples(6, folder).map(({ name }) => name)).toEqual([
    "e-exif-6.jpg",
    "f-cmyk.jpg",
    "g-grey.jpg",
    "d.png",
    "a.jpg",
    "b.jpg",
  ]);
});

test("an image is sent with its content type", () => {
  const types = new Map(readSamples(6, folder).map(({ name, contentType }) => [name, contentType]));
  expect([types.get("d.png"), types.get("a.jpg")]).toEqual(["image/png", "image/jpeg"]);
});

test("a missing folder is rejected", () => {
  expect(() => readSamples(6, "/no/such/folder")).toThrow(
    "sample images: /no/such/folder does not exist",
  );
});

const model = { name: "m" };
const reference: Reference = new Map([
  [
    model.name,
    [1, 2].map((value) => ({
      name: `${value}`,
      bytes: new Uint8Array(),
      contentType: "image/jpeg",
      tensor: Float32Array.of(value, value),
      embedding: new Float32Array(),
    })),
  ],
]);

test("the images repeat if more are requested than exist", () => {
  expect(cycle(reference, model, 5).map(({ name }) => name)).toEqual(["1", "2", "1", "2", "1"]);
});

test("a batch concatenates its images", () => {
  expect([...stack(cycle(reference, model, 3))]).toEqual([1, 1, 2, 2, 1, 1]);
});
