import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openPhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";
import { temporaryFolder } from "./test-photos.ts";

const newFile = () => join(temporaryFolder(), "photos.db");

test("keeps what was written", () => {
  const file = newFile();
  const first = openPhotoDatabase(file, { missing: "create" });
  writeSetting(first, "name", "value");
  first.close();
  const second = openPhotoDatabase(file);
  expect(readSetting(second, "name")).toBe("value");
  second.close();
});

test("a transaction that fails writes nothing", () => {
  const database = openPhotoDatabase(newFile(), { missing: "create" });
  expect(() =>
    database.transaction(() => {
      writeSetting(database, "name", "value");
      throw new Error("stop");
    }),
  ).toThrow("stop");
  expect(readSetting(database, "name")).toBeUndefined();
  database.close();
});

test("fails when there is no file", () => {
  const file = newFile();
  expect(() => openPhotoDatabase(file)).toThrow(
    `--db '${file}' does not exist: run 'clipstack-dedupe scan <folder>' first`,
  );
});

test("fails when another process has the file", () => {
  const file = newFile();
  const database = openPhotoDatabase(file, { missing: "create" });
  expect(() => openPhotoDatabase(file)).toThrow(`'${file}' is in use by process ${process.pid}`);
  database.close();
  openPhotoDatabase(file).close();
});

test("takes over from a process that was killed", () => {
  const file = newFile();
  openPhotoDatabase(file, { missing: "create" }).close();
  // above the largest process number of Linux
  writeFileSync(`${file}.owner`, "4194305");
  mkdirSync(`${file}.lock`);
  openPhotoDatabase(file).close();
  expect(existsSync(`${file}.owner`)).toBe(false);
});

test("fails when the file is something else", () => {
  const file = newFile();
  writeFileSync(file, "some text that is long enough to be no header of a database ".repeat(20));
  expect(() => openPhotoDatabase(file)).toThrow(/^--db '.*' cannot be opened: /);
});

test("fails when the file has another version", () => {
  const file = newFile();
  const database = openPhotoDatabase(file, { missing: "create" });
  database.run("PRAGMA user_version = 9");
  database.close();
  expect(() => openPhotoDatabase(file)).toThrow(
    `--db '${file}' has version 9, this program reads 1: scan into a new file`,
  );
});
