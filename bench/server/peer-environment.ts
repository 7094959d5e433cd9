import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** Folder of the peer: its program and what it needs. */
export const peerFolder = fileURLToPath(new URL("../peers/fastapi/", import.meta.url));

const requirements = join(peerFolder, "requirements.txt");

export type PeerEnvironment =
  | { readonly ok: true; readonly python: string; readonly packages: readonly string[] }
  | { readonly ok: false; readonly reason: string };

const installTimeoutMs = 5 * 60_000;
const run = promisify(execFile);

/**
 * A Python that has the peer's packages, in the user's cache: made once for each list of packages and Python. Where that
 * cannot be, the reason in one line.
 */
export async function preparePeer(
  signal: AbortSignal,
  onInstall: () => void,
): Promise<PeerEnvironment> {
  const text = readFileSync(requirements, "utf8");
  const packages = text.split("\n").filter((line) => line.trim() !== "");
  let version: string;
  try {
    version = (await run("python3", ["--version"], { signal })).stdout.trim();
  } catch (error) {
    signal.throwIfAborted();
    return { ok: false, reason: `no python3: ${lastLine(error)}` };
  }
  const key = createHash("sha256").update(`${version}\n${text}`).digest("hex").slice(0, 16);
  const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "clipstack");
  const folder = join(cache, `peer-fastapi-${key}`);
  const python = join(folder, "bin", "python");
  // one that was cut short has no such file, and is made anew
  const complete = join(folder, "complete");
  if (existsSync(complete)) return { ok: true, python, packages };
  onInstall();
  try {
    mkdirSync(cache, { recursive: true });
    rmSync(folder, { recursive: true, force: true });
    const options = { signal, timeout: installTimeoutMs };
    await run("python3", ["-m", "venv", folder], options);
    await run(
      python,
      ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements],
      options,
    );
    writeFileSync(complete, "");
    return { ok: true, python, packages };
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    signal.throwIfAborted();
    return { ok: false, reason: `its packages cannot be installed: ${lastLine(error)}` };
  }
}

/** What a program said last, which is where Python and pip say what is wrong. */
function lastLine(error: unknown): string {
  const { stderr, message } = error as { stderr?: string; message: string };
  const lines = (stderr || message).split("\n").filter((line) => line.trim() !== "");
  return lines.at(-1)?.trim() ?? message;
}
