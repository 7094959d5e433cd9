import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, stat, statfs, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join, relative } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { execa } from "execa";
import { sha256Of } from "../../inference-image/src/model/model-info.ts";
import { ownSuffix, unlessCode } from "../../inference-image/src/model/publish-file.ts";
import { runProgram } from "./run-program.ts";
import { UserError } from "./user-error.ts";

/** A virtual environment with PyTorch and what `model_repository/export/export.py` needs beside it. */

/** Where PyTorch comes from: PyPI, or PyTorch's own index, which has it without CUDA. */
export const pytorchSources = ["pypi", "cpu"] as const;
export type PytorchSource = (typeof pytorchSources)[number];

const exportFolder = fileURLToPath(new URL("../../model_repository/export/", import.meta.url));
const cpuIndex = "https://download.pytorch.org/whl/cpu";

/** What the locked packages are made for. */
const oldestPython = [3, 11] as const;
const newestPython = [3, 14] as const;
const versions = `${oldestPython.join(".")} to ${newestPython.join(".")}`;

/** Room for the packages and for their archives while they are installed, in bytes: measured, and a fifth more. */
const hasCuda = process.platform === "linux" && process.arch === "x64";
const neededBytes = { pypi: 12e9, cpu: 3e9 } as const;

export interface PytorchOptions {
  readonly source: PytorchSource;
  /** @default `$XDG_CACHE_HOME/clipstack` or `~/.cache/clipstack` */
  readonly cacheDir?: string;
  /**
   * Room that an installation must find, in bytes.
   *
   * @default what it was seen to take, and a fifth more
   */
  readonly neededBytes?: number;
  /** Programs that may be the Python to begin with, the first choice first. */
  readonly pythons?: readonly string[];
  readonly onProgress?: (line: string) => void;
  readonly signal?: AbortSignal;
}

/**
 * The Python of the environment for these locked packages, which is installed where it is missing. One that is there is
 * used when its files are those that were installed. Safe to call from several processes at once.
 *
 * @throws {UserError} where there is no Python that fits, no room, or a package cannot be had
 */
export async function ensurePytorch(options: PytorchOptions): Promise<string> {
  const { onProgress = () => {} } = options;
  // PyTorch has no CUDA on a Mac, wherever it is from
  const source = process.platform === "darwin" ? "pypi" : options.source;
  const base = await basePython(options.pythons ?? defaultPythons);
  const folder = await environmentFolder(base, source, options.cacheDir);
  const python = pythonOf(folder);
  const state = await stateOf(folder, () => onProgress(`checking the files of ${shown(folder)}`));
  if (state === "whole") return python;
  if (state === "changed") {
    onProgress(`${shown(folder)} is not what was installed: installing it again`);
    await rm(folder, { recursive: true, force: true });
  }
  await install({ ...options, source, base, folder, onProgress });
  return python;
}

/** The Python of an environment that is there, whole or not; `undefined` where none was installed. */
export async function findPytorch(
  options: Pick<PytorchOptions, "cacheDir"> = {},
): Promise<string | undefined> {
  const base = await basePython(defaultPythons).catch(() => undefined);
  if (base === undefined) return undefined;
  for (const source of pytorchSources) {
    const folder = await environmentFolder(base, source, options.cacheDir);
    if (await isThere(join(folder, checksumName))) return pythonOf(folder);
  }
  return undefined;
}

const defaultPythons = ["python3", "python3.13", "python3.12", "python3.11", "python3.14"];

interface BasePython {
  readonly program: string;
  /** As `-VV` prints it. */
  readonly version: string;
  readonly prefix: string;
}

async function basePython(pythons: readonly string[]): Promise<BasePython> {
  const others: string[] = [];
  for (const program of pythons) {
    const timeoutMs = 30_000;
    const version = await runProgram(program, ["-VV"], { timeoutMs });
    if (version.outcome !== "ended" || version.exitCode !== 0) continue;
    const [, major, minor] = /^Python (\d+)\.(\d+)/.exec(version.stdout) ?? [];
    const fits =
      Number(major) === oldestPython[0] &&
      Number(minor) >= oldestPython[1] &&
      Number(minor) <= newestPython[1];
    if (!fits) {
      others.push(`${program} is ${major}.${minor}`);
      continue;
    }
    const prefix = await runProgram(program, ["-c", "import sys; print(sys.base_prefix)"], {
      timeoutMs,
    });
    if (prefix.exitCode !== 0) continue;
    return { program, version: version.stdout.trim(), prefix: prefix.stdout.trim() };
  }
  const found = others.length > 0 ? `: ${[...new Set(others)].join(", ")}` : "";
  throw new UserError(
    `no Python ${versions} on the PATH${found}; install one, or name one that has PyTorch with --python`,
  );
}

/** Locked packages of a source, in the order of their installation. */
function lockFiles(source: PytorchSource): readonly string[] {
  return ["requirements.txt", `torch-${source}.txt`].map((name) => join(exportFolder, name));
}

/** `pytorch-<key>`: other packages, or another Python, are another folder. `.ci/python-venv pytorch` has the same. */
async function environmentFolder(
  { version, prefix }: BasePython,
  source: PytorchSource,
  cacheDir = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "clipstack"),
): Promise<string> {
  const locks = await Promise.all(lockFiles(source).map((file) => readFile(file, "utf8")));
  const text = `${locks.join("").trimEnd()} ${version} ${prefix}\n`;
  const key = createHash("sha256").update(text).digest("hex").slice(0, 16);
  return join(cacheDir, `pytorch-${key}`);
}

function pythonOf(folder: string): string {
  return process.platform === "win32"
    ? join(folder, "Scripts", "python.exe")
    : join(folder, "bin", "python");
}

/** SHA-256 of every file, as `sha256sum` prints it; written last, so that what was cut short is not taken for whole. */
const checksumName = "checksum";
/** Stamp of the files that were found to be whole: 7 GB take half a minute to read. */
const stampName = "checked";

async function stateOf(
  folder: string,
  onReading: () => void,
): Promise<"missing" | "changed" | "whole"> {
  const text = await readFile(join(folder, checksumName), "utf8").catch(() => undefined);
  if (text === undefined) return (await isThere(folder)) ? "changed" : "missing";
  const sums = text.split("\n").flatMap((line) => {
    const [, sum, name] = /^\\?([0-9a-f]{64}) [ *](.+)$/.exec(line) ?? [];
    return sum === undefined || name === undefined ? [] : [{ sum, file: join(folder, name) }];
  });
  const files = sums.map(({ file }) => file);
  const stamp = await stampOf(files);
  if (stamp === undefined || sums.length === 0) return "changed";
  const before = await readFile(join(folder, stampName), "utf8").catch(() => "");
  if (before === stamp) return "whole";
  onReading();
  for (const { sum, file } of sums) {
    if ((await sha256Of(file).catch(() => "")) !== sum) return "changed";
  }
  await writeFile(join(folder, stampName), stamp).catch(() => {});
  return "whole";
}

/** Changes with every write to one of the files; `undefined` where one is missing. */
async function stampOf(files: readonly string[]): Promise<string | undefined> {
  const hash = createHash("sha256");
  for (const file of files) {
    const found = await stat(file, { bigint: true }).catch(() => undefined);
    if (found === undefined) return undefined;
    hash.update(`${file} ${found.dev} ${found.ino} ${found.size} ${found.ctimeNs}\n`);
  }
  return hash.digest("hex");
}

interface Installation extends PytorchOptions {
  readonly base: BasePython;
  readonly folder: string;
  readonly onProgress: (line: string) => void;
}

async function install(options: Installation): Promise<void> {
  const { source, base, folder, onProgress } = options;
  await mkdir(dirname(folder), { recursive: true }).catch((error: NodeJS.ErrnoException) => {
    throw new UserError(`${dirname(folder)} cannot be written: ${error.code}`, { cause: error });
  });
  await removeAbandoned(folder);
  await requireRoom(dirname(folder), source, options.neededBytes);
  const size = source === "cpu" ? "0.3 GB to fetch" : "3 GB to fetch on Linux, 7 GB on disk";
  const from = source === "cpu" ? cpuIndex : "PyPI";
  onProgress(`installing PyTorch of ${from} into ${shown(folder)}, once: ${size}, some minutes`);
  // a Python starts from wherever its environment is: it is put in its place when it is whole
  const part = `${folder}.${ownSuffix()}.part`;
  try {
    await makeEnvironment(part, options);
    const python = pythonOf(part);
    // archives are as large as what is in them: not into a file system in memory
    const temporary = join(part, "tmp");
    await mkdir(temporary);
    const [others, torch] = lockFiles(source) as [string, string];
    const pip = (args: readonly string[]) =>
      runPip(python, ["install", "--no-deps", "--only-binary", ":all:", ...args], {
        ...options,
        temporary,
      });
    if (source === "cpu") {
      // what may not be had comes first
      await pip(["--index-url", cpuIndex, "-r", torch]);
      await pip(["--require-hashes", "-r", others]);
    } else {
      await pip(["--require-hashes", "-r", others, "-r", torch]);
    }
    await runPip(python, ["check"], { ...options, temporary });
    await rm(temporary, { recursive: true });
    const files = await writeChecksums(part);
    // another process may have been faster
    await rename(part, folder).catch(unlessCode("ENOTEMPTY", "EEXIST"));
    const stamp = await stampOf(files.map((file) => join(folder, file)));
    if (stamp !== undefined) await writeFile(join(folder, stampName), stamp);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOSPC") throw new UserError(noRoom(folder), { cause: error });
    throw error;
  } finally {
    await rm(part, { recursive: true, force: true });
  }
  onProgress(`installed, with ${base.program} ${base.version.split(" ")[1] ?? ""}`);
}

async function makeEnvironment(part: string, { base, signal }: Installation): Promise<void> {
  const made = await runProgram(base.program, ["-m", "venv", part], { timeoutMs: 300_000, signal });
  if (made.exitCode === 0) return;
  const text = `${made.stdout}\n${made.stderr}`;
  if (/No space left/i.test(text)) throw new UserError(noRoom(part));
  if (/ensurepip|No module named venv/.test(text)) {
    throw new UserError(
      `${base.program} cannot make virtual environments: on Debian and Ubuntu install python3-venv`,
    );
  }
  throw new UserError(`${base.program} -m venv failed: ${lastLine(text)}`);
}

async function runPip(
  python: string,
  args: readonly string[],
  { temporary, onProgress, signal }: Installation & { readonly temporary: string },
): Promise<void> {
  const child = execa(python, ["-m", "pip", "--disable-pip-version-check", "--no-input", ...args], {
    env: { LC_ALL: "C", TMPDIR: temporary, PIP_NO_COLOR: "1", PIP_PROGRESS_BAR: "off" },
    stdin: "ignore",
    reject: false,
    cancelSignal: signal,
    forceKillAfterDelay: 1_000,
  });
  for await (const line of createInterface({ input: child.stdout })) {
    const text = line.trim();
    if (/^(Downloading|Using cached) \S+ \((\d{3,}[\d.]* MB|[\d.]+ GB)\)/.test(text))
      onProgress(text);
    else if (text.startsWith("Installing collected packages")) onProgress("unpacking");
  }
  const { exitCode, stderr, stdout } = await child;
  signal?.throwIfAborted();
  if (exitCode === 0) return;
  const text = `${stdout}\n${stderr}`;
  if (/No space left on device/.test(text)) throw new UserError(noRoom(temporary));
  if (/DO NOT MATCH THE HASHES/.test(text)) {
    const [, name] = /^ {4}(\S+) .*from /m.exec(stderr) ?? [];
    throw new UserError(
      `${name ?? "a package"} is not what the lock file says: it was not installed`,
    );
  }
  const index = args.includes(cpuIndex) ? ` of ${cpuIndex}` : "";
  throw new UserError(`PyTorch${index} cannot be installed: ${lastLine(stderr, /^ERROR: /)}`);
}

function lastLine(text: string, prefix = /^(ERROR|Error): /): string {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
  const found = lines.findLast((line) => prefix.test(line)) ?? lines.at(-1) ?? "no reason given";
  return found.replace(prefix, "").slice(0, 300);
}

async function requireRoom(
  folder: string,
  source: PytorchSource,
  needed: number = hasCuda ? neededBytes[source] : 4e9,
): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize >= needed) return;
  const other = source === "pypi" && hasCuda ? "; --torch cpu needs 3 GB" : "";
  throw new UserError(
    `${folder} has ${gigabytes(bavail * bsize)} GB free, PyTorch needs ${gigabytes(needed)} GB${other} (XDG_CACHE_HOME names another folder)`,
  );
}

function noRoom(folder: string): string {
  return `no space left where ${dirname(folder)} is: PyTorch was not installed`;
}

function gigabytes(bytes: number): string {
  return (bytes / 1e9).toFixed(1);
}

/** @returns The files, relative to the folder, in the order of the list. */
async function writeChecksums(folder: string): Promise<readonly string[]> {
  const files: string[] = [];
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || entry.name.endsWith(".pyc")) continue;
    files.push(relative(folder, join(entry.parentPath, entry.name)));
  }
  const lines: string[] = [];
  for (const file of files.sort()) {
    lines.push(`${await sha256Of(join(folder, file))}  ./${file}\n`);
  }
  await writeFile(join(folder, checksumName), lines.join(""));
  return files;
}

/** An installation that was killed leaves up to 10 GB. */
async function removeAbandoned(folder: string): Promise<void> {
  const dayMs = 24 * 3600 * 1000;
  for (const name of await readdir(dirname(folder))) {
    if (!/^pytorch-[0-9a-f]{16}\.\d+\.\d+\.part$/.test(name)) continue;
    const part = join(dirname(folder), name);
    const changedAt = (await stat(part).catch(() => undefined))?.mtimeMs ?? Date.now();
    if (Date.now() - changedAt > dayMs) await rm(part, { recursive: true, force: true });
  }
}

async function isThere(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}

function shown(folder: string): string {
  return folder.startsWith(homedir()) ? `~${folder.slice(homedir().length)}` : folder;
}
