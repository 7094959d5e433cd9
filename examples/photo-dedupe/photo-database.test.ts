import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { movedPhotosOf } from "./moved-photos.ts";
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
    `--db '${file}' has version 9, this program reads 2: scan into a new file`,
  );
});

test("keeps the decisions, the groups and the way back of moved photos of version 1", () => {
  const file = newFile();
  const first = openPhotoDatabase(file, { missing: "create" });
  for (const sql of [
    "DROP VIEW reviewed",
    "DROP TABLE moves",
    "ALTER TABLE group_members DROP COLUMN md5",
    "ALTER TABLE decisions DROP COLUMN md5",
    "ALTER TABLE photos ADD COLUMN moved_to TEXT",
    `INSERT INTO photos (id, path, root, bytes, mtime_ms, state, md5, seen, moved_to)
     VALUES (1, '/p/a.jpg', '/p', 7, 1.5, 'moved', 'm', 1, '/p/clipstack-rejected/a.jpg')`,
    "INSERT INTO group_members (photo_id, group_id, position) VALUES (1, 'g', 0)",
    "INSERT INTO decisions (photo_id, decision) VALUES (1, 'reject')",
    "PRAGMA user_version = 1",
  ]) {
    first.run(sql);
  }
  first.close();
  const second = openPhotoDatabase(file);
  expect(movedPhotosOf(second)).toMatchObject([
    { photo_id: 1, path: "/p/a.jpg", moved_to: "/p/clipstack-rejected/a.jpg", bytes: 7 },
  ]);
  expect(second.all("SELECT id, position, decision FROM reviewed")).toEqual([
    { id: 1, position: 0, decision: "reject" },
  ]);
  second.close();
  openPhotoDatabase(file).close();
});
