import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import Database from "libsql";
import { CommandError, reasonOf } from "../search/report.ts";

export type SqlValue = number | string | Uint8Array | null;

/** Photos, groups and decisions: the SQLite file of an index. */
export interface PhotoDatabase {
  /** The index, as on the command line: it also contains one folder of `clipstack bulk` per model. */
  readonly folder: string;
  /** @returns Number of changed rows. */
  run(sql: string, ...values: readonly SqlValue[]): number;
  /** Returns all rows by column name. */
  all<Row>(sql: string, ...values: readonly SqlValue[]): readonly Row[];
  get<Row>(sql: string, ...values: readonly SqlValue[]): Row | undefined;
  /** Commits everything that `work` writes, or nothing if it throws. */
  transaction(work: () => void): void;
  close(): void;
}

/** "clip" and the schema version: increment when a table changes. */
const applicationId = 0x63_6c_70_05;

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
    sha256 TEXT,
    -- read when the photo is similar to another; heic is known from the scan
    format TEXT, hash TEXT, width INTEGER, height INTEGER, taken_at TEXT,
    -- index of its group; NULL in none
    position INTEGER,
    -- keep | reject
    decision TEXT,
    -- path of a moved photo
    moved_to TEXT
  );
  CREATE INDEX photos_by_sha256 ON photos (sha256);
  CREATE INDEX photos_in_groups ON photos (position, decision, state) WHERE position IS NOT NULL;
  CREATE INDEX moved_photos ON photos (path) WHERE state = 'moved';
  -- contents whose embeddings by a model were compared with each other, and the similar pairs
  CREATE TABLE compared (model TEXT, sha256 TEXT, PRIMARY KEY (model, sha256)) WITHOUT ROWID;
  CREATE TABLE pairs (model TEXT, a TEXT, b TEXT, cosine REAL, PRIMARY KEY (model, a, b)) WITHOUT ROWID;
  PRAGMA application_id = ${applicationId};
`;

/**
 * @param missing - Creates a missing index, or fails.
 * @throws {CommandError} if the index is missing or is not of this version
 */
export function openPhotoDatabase(
  folder: string,
  missing: "create" | "fail" = "fail",
): PhotoDatabase {
  const file = join(folder, "photos.db");
  if (missing === "fail" && !existsSync(file)) {
    throw new CommandError(
      "usage",
      `--index '${folder}' must be the folder of an index: run 'clipstack-dedupe scan <folder>' first`,
    );
  }
  const database = open(folder, file);
  const statements = new Map<string, Database.Statement>();
  /** Prepared once: a comparison writes many rows. */
  const statement = (sql: string) => {
    const known = statements.get(sql) ?? database.prepare(sql);
    statements.set(sql, known);
    return known;
  };
  return {
    folder,
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

function open(folder: string, file: string): Database.Database {
  let database: Database.Database | undefined;
  try {
    mkdirSync(folder, { recursive: true });
    // waits 10 s for the transaction of another process
    database = new Database(file, { timeout: 10_000 });
    database.pragma("journal_mode = WAL");
    database.pragma("synchronous = NORMAL");
    const found = (name: string) => database?.prepare(`PRAGMA ${name}`).pluck().all()[0];
    if (found("schema_version") === 0) database.exec(`BEGIN; ${schema} COMMIT;`);
    if (found("application_id") === applicationId) return database;
    throw new Error("it is not of this version of clipstack-dedupe; scan into a new one");
  } catch (cause) {
    database?.close();
    const reason = reasonOf(cause);
    throw new CommandError("usage", `--index '${folder}' cannot be used: ${reason}`, { cause });
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
  const text = JSON.stringify(value);
  database.run("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", name, text);
}
