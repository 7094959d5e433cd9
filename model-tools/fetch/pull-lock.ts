import { randomInt } from "node:crypto";
import { link, open, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { hostname } from "node:os";
import { abandonedAfterMs } from "../files/publish-file.ts";

/** Interval at which a lock is refreshed, in milliseconds; an older one than {@link abandonedAfterMs} is abandoned. */
const refreshMs = 30_000;

/**
 * Runs `work` while holding a lock file, which is created. Takes over a lock that a terminated process of this machine left behind.
 *
 * @throws {Error} with one line if another process holds the lock.
 */
export async function withFileLock<T>(
  path: string,
  target: string,
  work: () => Promise<T>,
): Promise<T> {
  const own = `${hostname()} ${process.pid} ${randomInt(2 ** 32)}\n`;
  heldLocks.add(own);
  try {
    await acquire(path, target, own);
    const refresh = setInterval(
      () => void utimes(path, new Date(), new Date()).catch(() => {}),
      refreshMs,
    );
    try {
      return await work();
    } finally {
      clearInterval(refresh);
      if ((await contentOf(path)) === own) await rm(path, { force: true }).catch(() => {});
    }
  } finally {
    heldLocks.delete(own);
  }
}

/** Content of the locks held by this process: a restarted container can have the host name and process id of its predecessor. */
const heldLocks = new Set<string>();

async function acquire(path: string, target: string, own: string): Promise<void> {
  for (let tries = 0; tries < 3; tries++) {
    if (await create(path, own)) return;
    const held = await contentOf(path);
    if (held === undefined) continue;
    if (!(await isAbandoned(path, held))) {
      // created a moment ago, its owner is not written yet
      if (held === "") continue;
      const [host, pid] = held.split(" ");
      const by = host === hostname() ? `process ${pid}` : `process ${pid} of ${host}`;
      throw new Error(`${target} is already being downloaded by ${by}: wait for it or stop it`);
    }
    await removeAbandoned(path, held);
  }
  throw new Error(`${target} is already being downloaded by another process: wait for it`);
}

async function create(path: string, content: string): Promise<boolean> {
  try {
    const handle = await open(path, "wx");
    await handle.writeFile(content).finally(() => handle.close());
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

function contentOf(path: string): Promise<string | undefined> {
  return readFile(path, "utf8").catch(() => undefined);
}

async function isAbandoned(path: string, held: string): Promise<boolean> {
  const [host, pid] = held.split(" ");
  const writtenAt = (await stat(path).catch(() => undefined))?.mtimeMs ?? Date.now();
  if (Date.now() - writtenAt > abandonedAfterMs) return true;
  if (host !== hostname() || pid === undefined) return false;
  return Number(pid) === process.pid ? !heldLocks.has(held) : !isRunning(Number(pid));
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: the process exists and belongs to another user
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** Removes an abandoned lock, unless another process has acquired it since it was read. */
async function removeAbandoned(path: string, abandonedContent: string): Promise<void> {
  const aside = `${path}.${process.pid}.${randomInt(2 ** 32)}`;
  await rename(path, aside).catch(() => {});
  const moved = await contentOf(aside);
  if (moved !== undefined && moved !== abandonedContent) await link(aside, path).catch(() => {});
  await rm(aside, { force: true });
}
