import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openPhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";
import { temporaryFolder } from "./test-photos.ts";

const newIndex = () => join(temporaryFolder(), "index");

test("persists data in the folder", () => {
  const file = newIndex();
  const first = openPhotoDatabase(file, "create");
  writeSetting(first, "name", { a: [1] });
  first.close();
  const copy = newIndex();
  cpSync(file, copy, { recursive: true });
  const second = openPhotoDatabase(copy);
  expect(readSetting(second, "name")).toEqual({ a: [1] });
  expect(readSetting(second, "other")).toBeUndefined();
  second.close();
});

test("transactions are atomic", () => {
  const database = openPhotoDatabase(newIndex(), "create");
  expect(() =>
    database.transaction(() => {
      writeSetting(database, "name", "value");
      throw new Error("no");
    }),
  ).toThrow("no");
  expect(readSetting(database, "name")).toBeUndefined();
  database.close();
});

test("fails with one line if the index is missing, a file or contains no database", () => {
  const folder = newIndex();
  expect(() => openPhotoDatabase(folder)).toThrow(
    `--index '${folder}' must be the folder of an index: run 'clipstack-dedupe scan <folder>' first`,
  );
  mkdirSync(folder);
  const file = join(folder, "old.db");
  writeFileSync(file, "");
  expect(() => openPhotoDatabase(file)).toThrow(`--index '${file}' must be the folder of an index`);
  writeFileSync(join(folder, "photos.db"), "this is a text and no database at all");
  expect(() => openPhotoDatabase(folder)).toThrow(
    `--index '${folder}' cannot be used: file is not a database`,
  );
  expect(() => openPhotoDatabase(join(folder, "photos.db"), "create")).toThrow(
    /^--index '.*' cannot be used: .+$/,
  );
});

test("fails with one line on an index of another version", () => {
  const file = newIndex();
  const database = openPhotoDatabase(file, "create");
  database.run("PRAGMA application_id = 7");
  database.close();
  expect(() => openPhotoDatabase(file)).toThrow(
    `--index '${file}' cannot be used: it is not of this version of clipstack-dedupe`,
  );
});

test("two processes can use it concurrently", () => {
  const file = newIndex();
  const first = openPhotoDatabase(file, "create");
  writeSetting(first, "name", 1);
  const second = openPhotoDatabase(file);
  writeSetting(second, "name", 2);
  expect(readSetting(first, "name")).toBe(2);
  first.close();
  second.close();
});
