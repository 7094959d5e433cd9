import { existsSync } from "node:fs";
import Database from "libsql";
import { DedupeError, reasonOf } from "./dedupe-error.ts";

export type SqlValue = number | string | Uint8Array | null;

/** Index of photos, a SQLite file. */
export interface PhotoDatabase {
  /** Path, as on the command line. */
  readonly file: string;
  /** @returns Number of changed rows. */
  run(sql: string, ...values: readonly SqlValue[]): number;
  /** Returns all rows by column name; a BLOB is an `ArrayBuffer`. */
  all<Row>(sql: string, ...values: readonly SqlValue[]): readonly Row[];
  get<Row>(sql: string, ...values: readonly SqlValue[]): Row | undefined;
  /** Commits everything that `work` writes, or nothing if it throws. */
  transaction(work: () => void): void;
  close(): void;
}

/** "clip" and the schema version: increment when a table changes. */
const applicationId = 0x63_6c_70_04;
/** Version 3 had embeddings of one model. */
const version3 = 0x63_6c_70_03;

const schema = `
  CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
  CREATE TABLE photos (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    -- the scanned folder
    root TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    mtime_ms REAL NOT NULL,
    -- number of the last scan that found it
    seen INTEGER NOT NULL,
    -- present | unreadable | gone | moved
    state TEXT NOT NULL,
    md5 TEXT,
    hash TEXT,
    format TEXT,
    width INTEGER,
    height INTEGER,
    taken_at TEXT,
    -- index of its group; NULL in none, and after the file has changed
    position INTEGER,
    -- keep | reject; NULL after the file has changed
    decision TEXT,
    -- path of a moved photo
    moved_to TEXT
  );
  CREATE INDEX photos_by_md5 ON photos (md5);
`;

const version4 = `
  CREATE INDEX photos_in_groups ON photos (position, decision, state) WHERE position IS NOT NULL;
  CREATE INDEX moved_photos ON photos (path) WHERE state = 'moved';
  CREATE TABLE models (
    id INTEGER PRIMARY KEY,
    -- of the model's spec
    name TEXT NOT NULL UNIQUE,
    -- values of an embedding
    width INTEGER NOT NULL,
    -- embedding of the probe picture, as JSON
    probe TEXT NOT NULL,
    -- random | unknown
    weights TEXT NOT NULL,
    -- minimum cosine and maximum hash distance of the stored pairs; NULL before the first comparison
    threshold REAL,
    bits INTEGER,
    -- centres of the cells: [count, width] float32; NULL for one cell
    centres BLOB,
    -- number of embeddings when the centres were computed
    trained INTEGER
  );
  -- by content, so that copies share an embedding; float32, little endian, unit norm
  CREATE TABLE embeddings (
    id INTEGER PRIMARY KEY,
    model INTEGER NOT NULL,
    md5 TEXT NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (model, md5)
  );
  -- closest cell of each compared embedding
  CREATE TABLE cells (
    model INTEGER NOT NULL,
    cell INTEGER NOT NULL,
    embedding INTEGER NOT NULL,
    PRIMARY KEY (model, cell, embedding)
  ) WITHOUT ROWID;
  -- similar pairs of embeddings, a < b
  CREATE TABLE pairs (
    model INTEGER NOT NULL,
    a INTEGER NOT NULL,
    b INTEGER NOT NULL,
    cosine REAL NOT NULL,
    PRIMARY KEY (model, a, b)
  ) WITHOUT ROWID;
  PRAGMA application_id = ${applicationId};
`;

/** Keeps photos, decisions and embeddings: version 3 knew one model. */
const migration = `
  DROP INDEX photos_by_position;
  ALTER TABLE embeddings RENAME TO old_embeddings;
  ${version4}
  INSERT INTO models (id, name, width, probe, weights)
    SELECT 1, 'openclip-vit-b32', json_array_length(value, '$.probe'), json_extract(value, '$.probe'),
      json_extract(value, '$.weights') FROM settings WHERE name = 'model';
  INSERT INTO embeddings (model, md5, vector)
    SELECT 1, md5, vector FROM old_embeddings WHERE EXISTS (SELECT 1 FROM models);
  DROP TABLE old_embeddings;
  DELETE FROM settings WHERE name = 'model';
`;

/**
 * @param missing - Creates a missing file, or fails.
 * @throws {DedupeError} if the file is missing or is not an index of this version
 */
export function openPhotoDatabase(
  file: string,
  missing: "create" | "fail" = "fail",
): PhotoDatabase {
  if (missing === "fail" && !existsSync(file)) {
    throw new DedupeError(
      "usage",
      `--db '${file}' does not exist: run 'clipstack-dedupe scan <folder>' first`,
    );
  }
  const database = open(file);
  const statements = new Map<string, Database.Statement>();
  /** Prepared once: a comparison writes many rows. */
  const statement = (sql: string) => {
    const known = statements.get(sql) ?? database.prepare(sql);
    statements.set(sql, known);
    return known;
  };

  return {
    file,
    run: (sql, ...values) => statement(sql).run(...values).changes,
    all: <Row>(sql: string, ...values: readonly SqlValue[]) =>
      statement(sql).all(...values) as Row[],
    get: <Row>(sql: string, ...values: readonly SqlValue[]) =>
      statement(sql).all(...values)[0] as Row | undefined,
    transaction: (work) => database.transaction(work)(),
    close() {
      // makes the file complete without its write-ahead log
      database.pragma("wal_checkpoint(TRUNCATE)");
      database.close();
    },
  };
}

/** Maximum time to wait for the transaction of another process. */
const busyTimeoutMs = 10_000;

function open(file: string): Database.Database {
  let database: Database.Database | undefined;
  try {
    database = new Database(file, { timeout: busyTimeoutMs });
    database.pragma("journal_mode = WAL");
    database.pragma("synchronous = NORMAL");
    const found = (name: string) => database?.prepare(`PRAGMA ${name}`).pluck().all()[0];
    if (found("schema_version") === 0) database.exec(`BEGIN; ${schema} ${version4} COMMIT;`);
    else if (found("application_id") === version3) database.exec(`BEGIN; ${migration} COMMIT;`);
    if (found("application_id") === applicationId) return database;
    throw new Error("it is not a file of this version of clipstack-dedupe; scan into a new one");
  } catch (cause) {
    database?.close();
    throw new DedupeError("usage", `--db '${file}' cannot be used: ${reasonOf(cause)}`, { cause });
  }
}

/** Reads a JSON value by name, such as the options of the groups. */
export function readSetting<Value>(database: PhotoDatabase, name: string): Value | undefined {
  const row = database.get<{ readonly value: string }>(
    "SELECT value FROM settings WHERE name = ?",
    name,
  );
  return row && JSON.parse(row.value);
}

export function writeSetting(database: PhotoDatabase, name: string, value: unknown): void {
  database.run(
    "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
    name,
    JSON.stringify(value),
  );
}
