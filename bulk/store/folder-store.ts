import type { Stats } from "node:fs";
import { link, open, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { UserError } from "../../contract/user-error.ts";
import { abandonedAfterMs, makeFolder, ownSuffix } from "../../model-tools/files/publish-file.ts";
import { type Store, type StoredObject, StoreError, type StoreErrorCode } from "./store.ts";

export function openFolderStore(folder: string): Store {
  const address = resolve(folder);
  const pathOf = (key: string) => join(address, key);
  const drafts = join(address, ".drafts");
  let cleaned: Promise<void> | undefined;
  /** Writes a hidden file, flushes it to the disk and publishes it. */
  const writeDraft = async (path: string, content: Uint8Array | string, publish: typeof rename) => {
    await makeFolder(dirname(path));
    await makeFolder(drafts);
    cleaned ??= removeAbandoned(drafts);
    await cleaned;
    const draft = join(drafts, ownSuffix());
    try {
      const file = await open(draft, "wx");
      try {
        await file.writeFile(content);
        await file.sync();
      } finally {
        await file.close();
      }
      await publish(draft, path);
    } finally {
      await rm(draft, { force: true });
    }
  };
  return {
    address,
    async *list(prefix = "") {
      for await (const object of objectsIn(address, "")) {
        if (object.key.startsWith(prefix)) yield object;
      }
    },
    read: (key, etag = "") =>
      ofFolder(pathOf(key), async () => {
        requireFile(pathOf(key), await stat(pathOf(key)));
        const content = await readFile(pathOf(key));
        if (etag !== "") requireEtag(pathOf(key), await stat(pathOf(key)), etag);
        return content;
      }),
    stream: (key, etag = "") =>
      ofFolder(pathOf(key), async () => {
        requireFile(pathOf(key), await stat(pathOf(key)));
        const file = await open(pathOf(key));
        requireEtag(pathOf(key), await file.stat(), etag);
        return file.createReadStream();
      }),
    write: (key, content) => ofFolder(pathOf(key), () => writeDraft(pathOf(key), content, rename)),
    create: (key, content) =>
      ofFolder(pathOf(key), async () => {
        try {
          await writeDraft(pathOf(key), content, link);
          return true;
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
          throw error;
        }
      }),
    remove: (key) => ofFolder(pathOf(key), () => rm(pathOf(key), { force: true })),
  };
}

/** Removes the drafts of killed processes. */
async function removeAbandoned(drafts: string): Promise<void> {
  for (const name of await readdir(drafts)) {
    const draft = join(drafts, name);
    const writtenAt = (await stat(draft).catch(() => undefined))?.mtimeMs ?? Date.now();
    if (Date.now() - writtenAt > abandonedAfterMs) await rm(draft, { force: true });
  }
}

/** Lists the files below a folder, without hidden ones, in the order in which S3 lists keys. */
async function* objectsIn(root: string, parent: string): AsyncGenerator<StoredObject> {
  const entries = await readdir(join(root, parent), { withFileTypes: true }).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return [];
      if (error.code === "ENOTDIR") throw new UserError(`${root}: must be a folder, got a file`);
      throw new StoreError("denied", `${join(root, parent)}: cannot be listed: ${error.code}`);
    },
  );
  const named = entries
    .filter(({ name }) => !name.startsWith("."))
    .map((entry) => ({ entry, key: `${parent}${entry.name}${entry.isDirectory() ? "/" : ""}` }))
    .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)))
    // several names that are not UTF-8 may be equal here
    .filter(({ key }, at, all) => key !== all[at - 1]?.key);
  for (const { entry, key } of named) {
    if (entry.isDirectory()) {
      yield* objectsIn(root, key);
      continue;
    }
    // a link to a file counts as a file; reading explains what has no status, such as a link to nowhere
    const stats = await stat(join(root, key)).catch(() => undefined);
    if (stats === undefined) yield { key, bytes: 0, etag: "" };
    else if (stats.isFile()) yield { key, bytes: stats.size, etag: etagOf(stats) };
  }
}

/** Reading a pipe or device would not end. */
function requireFile(path: string, stats: Stats): void {
  if (!stats.isFile()) throw new StoreError("missing", `${path}: must be a file`);
}

/** @param etag - Empty: any. */
function requireEtag(path: string, stats: Stats, etag: string): void {
  if (etag === "" || etagOf(stats) === etag) return;
  throw new StoreError("changed", `${path}: has changed since the job was planned`);
}

function etagOf({ size, mtimeMs }: Stats): string {
  return `${size.toString(36)}-${Math.round(mtimeMs * 1000).toString(36)}`;
}

const codes: Readonly<Record<string, readonly [StoreErrorCode, string]>> = {
  ENOENT: ["missing", "does not exist"],
  EACCES: ["denied", "access is denied"],
  EPERM: ["denied", "access is denied"],
  EROFS: ["denied", "the file system is read-only"],
  ENOTDIR: ["denied", "its parent is not a folder"],
  ENOSPC: ["full", "the disk is full"],
  EDQUOT: ["full", "the disk quota is exhausted"],
  EMFILE: ["unavailable", "too many files are open"],
  ENFILE: ["unavailable", "too many files are open"],
  ENOMEM: ["unavailable", "no memory is free"],
};

async function ofFolder<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    if (error instanceof StoreError || code === "") throw error;
    const [kind, found] = codes[code] ?? (["denied", `cannot be used: ${code}`] as const);
    const problem = path.includes("\ufffd") ? "its name must be UTF-8" : found;
    throw new StoreError(kind, `${path}: ${problem}`, { cause: error });
  }
}
