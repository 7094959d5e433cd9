import { copyFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import Database from "libsql";
import { expect, test } from "vitest";
import { readVector } from "./compare.ts";
import { findModel } from "./index-model.ts";
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

test("migrates an index of version 3 and keeps photos, decisions and embeddings", () => {
  const file = newFile();
  const old = new Database(file);
  old.exec(`
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE photos (
      id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, root TEXT NOT NULL, bytes INTEGER NOT NULL, mtime_ms REAL NOT NULL,
      seen INTEGER NOT NULL, state TEXT NOT NULL, md5 TEXT, hash TEXT, format TEXT, width INTEGER, height INTEGER,
      taken_at TEXT, position INTEGER, decision TEXT, moved_to TEXT);
    CREATE INDEX photos_by_md5 ON photos (md5);
    CREATE INDEX photos_by_position ON photos (position);
    CREATE TABLE embeddings (md5 TEXT PRIMARY KEY, vector BLOB NOT NULL);
    INSERT INTO settings VALUES ('model', '{"probe":[0.6,0.8],"weights":"random"}');
    INSERT INTO photos (path, root, bytes, mtime_ms, seen, state, md5, decision)
      VALUES ('/a', '/', 1, 1, 1, 'present', 'aa', 'keep');
    INSERT INTO embeddings VALUES ('aa', x'0000803f00000000');
    PRAGMA application_id = ${0x63_6c_70_03};`);
  old.close();
  const database = openPhotoDatabase(file);
  expect(findModel(database)).toMatchObject({
    name: "openclip-vit-b32",
    width: 2,
    probe: "[0.6,0.8]",
    weights: "random",
  });
  expect(database.all("SELECT decision FROM photos")).toEqual([{ decision: "keep" }]);
  expect(new Float32Array(readVector(database, 1))).toEqual(new Float32Array([1, 0]));
  database.close();
  openPhotoDatabase(file).close();
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
