import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
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
  expect(() => openPhotoDatabase(file)).toThrow(
    `--db '${file}' is damaged, or something else (file is not a database): scan into a new file`,
  );
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

test("of two that find a process gone, the second waits for the first", () => {
  const file = newFile();
  openPhotoDatabase(file, { missing: "create" }).close();
  writeFileSync(`${file}.owner`, "4194305");
  mkdirSync(`${file}.owner.taking`);
  const open = () => openPhotoDatabase(file);
  expect(open).toThrow(`'${file}' is being opened by another process: try again`);
  expect(existsSync(`${file}.owner`)).toBe(true);
  // one that was killed meanwhile holds nobody up for long
  utimesSync(`${file}.owner.taking`, 1_000, 1_000);
  expect(open).toThrow("try again");
  open().close();
  expect(readdirSync(dirname(file))).toEqual(["photos.db"]);
});

test("gives back only what is its own", () => {
  const file = newFile();
  const database = openPhotoDatabase(file, { missing: "create" });
  writeFileSync(`${file}.owner`, "1");
  database.close();
  expect(readFileSync(`${file}.owner`, "utf8")).toBe("1");
});

test("fails in one line when the disk is full, and is usable afterwards", () => {
  const file = newFile();
  const database = openPhotoDatabase(file, { missing: "create" });
  writeSetting(database, "kept", "value");
  database.run("PRAGMA max_page_count = 1");
  const write = () =>
    database.transaction(() => writeSetting(database, "large", "x".repeat(100_000)));
  expect(write).toThrow(
    `--db '${file}' cannot be read or written (database or disk is full): is the disk full?`,
  );
  database.close();
  const again = openPhotoDatabase(file);
  expect([readSetting(again, "kept"), readSetting(again, "large")]).toEqual(["value", undefined]);
  again.close();
});

test("fails in one line when the file is damaged inside", () => {
  const file = newFile();
  const database = openPhotoDatabase(file, { missing: "create" });
  for (let i = 0; i < 50; i++) writeSetting(database, `name ${i}`, "x".repeat(1_000));
  database.close();
  const bytes = readFileSync(file);
  // all but the schema
  bytes.fill(0x5a, 3 * 4096);
  writeFileSync(file, bytes);
  const damaged = openPhotoDatabase(file);
  expect(() => damaged.all("SELECT * FROM settings")).toThrow(/^--db '.*' is damaged/);
  damaged.close();
  expect(existsSync(`${file}.owner`)).toBe(false);
});
