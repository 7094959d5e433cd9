import { copyFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { openPhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";
import { temporaryFolder } from "./test-photos.ts";

const newFile = () => join(temporaryFolder(), "photos.db");

test("persists data in one file", () => {
  const file = newFile();
  const first = openPhotoDatabase(file, "create");
  writeSetting(first, "name", { a: [1] });
  first.close();
  const copy = newFile();
  copyFileSync(file, copy);
  const second = openPhotoDatabase(copy);
  expect(readSetting(second, "name")).toEqual({ a: [1] });
  expect(readSetting(second, "other")).toBeUndefined();
  second.close();
});

test("transactions are atomic", () => {
  const database = openPhotoDatabase(newFile(), "create");
  expect(() =>
    database.transaction(() => {
      writeSetting(database, "name", "value");
      throw new Error("no");
    }),
  ).toThrow("no");
  expect(readSetting(database, "name")).toBeUndefined();
  database.close();
});

test("fails with one line if the file is missing, a folder or not a database", () => {
  const file = newFile();
  expect(() => openPhotoDatabase(file)).toThrow(
    `--db '${file}' does not exist: run 'clipstack-dedupe scan <folder>' first`,
  );
  expect(() => openPhotoDatabase(dirname(file), "create")).toThrow(
    /^--db '.*' cannot be used: .+$/,
  );
  writeFileSync(file, "this is a text and no database at all");
  expect(() => openPhotoDatabase(file)).toThrow(
    `--db '${file}' cannot be used: file is not a database`,
  );
});

test("fails with one line on an index of another version", () => {
  const file = newFile();
  const database = openPhotoDatabase(file, "create");
  database.run("PRAGMA application_id = 7");
  database.close();
  expect(() => openPhotoDatabase(file)).toThrow(
    `--db '${file}' cannot be used: it is not a file of this version of clipstack-dedupe`,
  );
});

test("two processes can use it concurrently", () => {
  const file = newFile();
  const first = openPhotoDatabase(file, "create");
  writeSetting(first, "name", 1);
  const second = openPhotoDatabase(file);
  writeSetting(second, "name", 2);
  expect(readSetting(first, "name")).toBe(2);
  first.close();
  second.close();
});
