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

/** "clip", schema version 3: increment when a table changes. */
const applicationId = 0x63_6c_70_03;

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
  CREATE INDEX photos_by_position ON photos (position);
  -- by content, so that copies share an embedding; 512 float32, little endian, unit norm
  CREATE TABLE embeddings (md5 TEXT PRIMARY KEY, vector BLOB NOT NULL);
  PRAGMA application_id = ${applicationId};
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

  return {
    file,
    run: (sql, ...values) => database.prepare(sql).run(...values).changes,
    all: <Row>(sql: string, ...values: readonly SqlValue[]) =>
      database.prepare(sql).all(...values) as Row[],
    get: <Row>(sql: string, ...values: readonly SqlValue[]) =>
      database.prepare(sql).all(...values)[0] as Row | undefined,
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
    if (found("schema_version") === 0) database.exec(schema);
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
