import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryFolder } from "../../examples/photo-dedupe/test-photos.ts";
import { makePhotos } from "./make-photos.ts";

test("fails if the folder is not empty and changes nothing", async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, "labels.json"), "mine");
  await expect(makePhotos(folder)).rejects.toThrow(
    `folder '${folder}' is not empty: choose a new one`,
  );
  expect(readdirSync(folder)).toEqual(["labels.json"]);
  expect(readFileSync(join(folder, "labels.json"), "utf8")).toBe("mine");
});
