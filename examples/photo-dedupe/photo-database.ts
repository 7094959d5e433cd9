import { statSync } from "node:fs";
import { resolve } from "node:path";
import sqlite from "node-sqlite3-wasm";
import { takeDatabase } from "./database-owner.ts";
import { DedupeError, systemReason } from "./dedupe-error.ts";

export type SqlValue = number | string | Uint8Array | null;

/** What is known of the photos: one SQLite file, used by one process at a time. */
export interface PhotoDatabase {
  /** As it was named. */
  readonly file: string;
  run(sql: string, values?: readonly SqlValue[]): void;
  /** Rows as the statement names their columns. */
  all<Row>(sql: string, values?: readonly SqlValue[]): readonly Row[];
  get<Row>(sql: string, values?: readonly SqlValue[]): Row | undefined;
  /** All of what `work` writes, or nothing of it. */
  transaction<Result>(work: () => Result): Result;
  close(): void;
}

export interface OpenOptions {
  /**
   * What happens when there is no such file: `create` it, or `fail`.
   *
   * @default "fail"
   */
  readonly missing?: "create" | "fail";
}

/** Bumped when a table changes; a file of another version is refused. */
const schemaVersion = 2;

/** "clip" as four bytes: says whose file it is. */
const applicationId = 0x63_6c_69_70;

/** Where rejected photos lie, and the photos of the groups as a person sees them. */
const movesSchema = `
  -- a row stays until its photo is put back, whatever is found where the photo was
  CREATE TABLE moves (
    id INTEGER PRIMARY KEY,
    photo_id INTEGER NOT NULL REFERENCES photos (id),
    path TEXT NOT NULL,
    root TEXT NOT NULL,
    moved_to TEXT NOT NULL UNIQUE,
    bytes INTEGER NOT NULL,
    mtime_ms REAL NOT NULL,
    -- 1 while it is put back: an empty file at its path is ours
    coming_back INTEGER NOT NULL DEFAULT 0
  );
  CREATE INDEX moves_by_photo ON moves (photo_id);
  -- a photo that is another file than was compared is in no group
  CREATE VIEW reviewed AS
    SELECT m.position, m.group_id, p.*, d.decision
    FROM group_members m JOIN photos p ON p.id = m.photo_id AND p.md5 = m.md5
    LEFT JOIN decisions d ON d.photo_id = p.id AND d.md5 = p.md5;
`;

const schema = `
  CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
  CREATE TABLE photos (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    -- the folder that was scanned
    root TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    mtime_ms REAL NOT NULL,
    -- present | unreadable | gone | moved
    state TEXT NOT NULL,
    -- why it is unreadable, or could not be embedded
    problem TEXT,
    md5 TEXT,
    hash TEXT,
    format TEXT,
    width INTEGER,
    height INTEGER,
    taken_at TEXT,
    -- the scan that saw it last
    seen INTEGER NOT NULL
  );
  CREATE INDEX photos_by_state ON photos (state, id);
  CREATE TABLE models (
    id INTEGER PRIMARY KEY,
    -- where it was first met, for people
    label TEXT NOT NULL,
    -- its embedding of the probe picture: what it is known by
    probe BLOB NOT NULL,
    weights TEXT NOT NULL
  );
  CREATE TABLE embeddings (
    photo_id INTEGER PRIMARY KEY REFERENCES photos (id) ON DELETE CASCADE,
    model_id INTEGER NOT NULL REFERENCES models (id),
    -- of the file that was embedded
    md5 TEXT NOT NULL,
    -- 512 float32, little endian, unit norm
    vector BLOB NOT NULL
  );
  CREATE INDEX embeddings_by_md5 ON embeddings (md5);
  CREATE TABLE group_members (
    photo_id INTEGER PRIMARY KEY REFERENCES photos (id) ON DELETE CASCADE,
    group_id TEXT NOT NULL,
    -- order of the groups
    position INTEGER NOT NULL,
    -- of the file that was compared
    md5 TEXT NOT NULL
  );
  CREATE INDEX members_by_position ON group_members (position, photo_id);
  CREATE TABLE decisions (
    photo_id INTEGER PRIMARY KEY REFERENCES photos (id) ON DELETE CASCADE,
    -- keep | reject
    decision TEXT NOT NULL,
    -- of the file that was decided on: another file of that name is another photo
    md5 TEXT NOT NULL
  );
  -- what undo takes back: each photo's decision as it was before
  CREATE TABLE actions (id INTEGER PRIMARY KEY, before TEXT NOT NULL);
  ${movesSchema}
  PRAGMA application_id = ${applicationId};
  PRAGMA user_version = ${schemaVersion};
`;

/** Groups, decisions and the way back of moved photos are kept; the steps that undo knew are not. */
const fromVersion1 = `
  ALTER TABLE group_members ADD COLUMN md5 TEXT NOT NULL DEFAULT '';
  UPDATE group_members SET md5 = coalesce((SELECT md5 FROM photos WHERE id = photo_id), '');
  ALTER TABLE decisions ADD COLUMN md5 TEXT NOT NULL DEFAULT '';
  UPDATE decisions SET md5 = coalesce((SELECT md5 FROM photos WHERE id = photo_id), '');
  DELETE FROM actions;
  ${movesSchema}
  INSERT INTO moves (photo_id, path, root, moved_to, bytes, mtime_ms)
    SELECT id, path, root, moved_to, bytes, mtime_ms FROM photos WHERE moved_to IS NOT NULL;
  ALTER TABLE photos DROP COLUMN moved_to;
  PRAGMA user_version = ${schemaVersion};
`;

/** @throws {DedupeError} one line, when the file is missing, in use, or not one of ours */
export function openPhotoDatabase(
  file: string,
  { missing = "fail" }: OpenOptions = {},
): PhotoDatabase {
  const path = resolve(file);
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined && missing === "fail") {
    throw new DedupeError(
      "usage",
      `--db '${file}' does not exist: run 'clipstack-dedupe scan <folder>' first`,
    );
  }
  if (stats?.isFile() === false) throw new DedupeError("usage", `--db '${file}' is not a file`);
  const release = takeDatabase(path, file);
  let database: sqlite.Database | undefined;
  try {
    database = new sqlite.Database(path);
    // one process has the file anyway: this spares a lock for every statement
    database.exec("PRAGMA locking_mode = EXCLUSIVE");
    prepareSchema(database, file);
    return databaseOf(database, file, release);
  } catch (error) {
    try {
      database?.close();
    } catch {
      // what is wrong was said by the first error
    }
    release();
    if (error instanceof DedupeError) throw error;
    throw new DedupeError("usage", problemText(file, error), { cause: error });
  }
}

function prepareSchema(database: sqlite.Database, file: string): void {
  const pragma = (name: string) => Number(database.get(`PRAGMA ${name}`)?.[name]);
  const version = pragma("user_version");
  if (version === 0 && pragma("schema_version") === 0) {
    database.exec("BEGIN");
    database.exec(schema);
    database.exec("COMMIT");
    return;
  }
  if (pragma("application_id") !== applicationId) {
    throw new DedupeError("usage", `--db '${file}' is not a file of clipstack-dedupe`);
  }
  if (version === 1) {
    database.exec("BEGIN");
    database.exec(fromVersion1);
    database.exec("COMMIT");
    return;
  }
  if (version !== schemaVersion) {
    throw new DedupeError(
      "usage",
      `--db '${file}' has version ${version}, this program reads ${schemaVersion}: scan into a new file`,
    );
  }
}

function databaseOf(database: sqlite.Database, file: string, release: () => void): PhotoDatabase {
  const statements = new Map<string, sqlite.Statement>();

  function prepared(sql: string): sqlite.Statement {
    const known = statements.get(sql);
    if (known !== undefined) return known;
    const statement = database.prepare(sql);
    statements.set(sql, statement);
    return statement;
  }

  function told<Result>(work: () => Result): Result {
    try {
      return work();
    } catch (error) {
      if (!(error instanceof sqlite.SQLite3Error)) throw error;
      throw new DedupeError("failed", problemText(file, error), { cause: error });
    }
  }

  return {
    file,
    run(sql, values = []) {
      told(() => prepared(sql).run([...values]));
    },
    all<Row>(sql: string, values: readonly SqlValue[] = []) {
      return told(() => prepared(sql).all([...values])) as unknown as readonly Row[];
    },
    get<Row>(sql: string, values: readonly SqlValue[] = []) {
      const row = told(() => prepared(sql).get([...values]));
      return (row ?? undefined) as unknown as Row | undefined;
    },
    transaction(work) {
      told(() => database.exec("BEGIN"));
      try {
        const result = work();
        told(() => database.exec("COMMIT"));
        return result;
      } catch (error) {
        if (database.inTransaction) told(() => database.exec("ROLLBACK"));
        throw error;
      }
    },
    close() {
      try {
        for (const statement of statements.values()) finalize(statement);
        statements.clear();
        told(() => database.close());
      } finally {
        release();
      }
    },
  };
}

/** A statement that failed says so again when it is finalized. */
function finalize(statement: sqlite.Statement): void {
  try {
    statement.finalize();
  } catch {
    // it was told when it failed
  }
}

/** What SQLite says, and what a person can do about it. */
function problemText(file: string, error: unknown): string {
  const reason = systemReason(error);
  if (reason.includes("malformed") || reason.includes("not a database")) {
    return `--db '${file}' is damaged, or something else (${reason}): scan into a new file; moved photos lie in 'clipstack-rejected' of the scanned folder, or in that of --rejected`;
  }
  if (reason.includes("disk I/O error") || reason.includes("is full")) {
    return `--db '${file}' cannot be read or written (${reason}): is the disk full? The same command goes on from here`;
  }
  return `--db '${file}' cannot be used: ${reason}`;
}

/** A value that is kept under a name, for example how the groups were made. */
export function readSetting(database: PhotoDatabase, name: string): string | undefined {
  return database.get<{ readonly value: string }>("SELECT value FROM settings WHERE name = ?", [
    name,
  ])?.value;
}

export function writeSetting(database: PhotoDatabase, name: string, value: string): void {
  database.run("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", [name, value]);
}
