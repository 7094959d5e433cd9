import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { execa } from "execa";
import { UserError } from "../../contract/user-error.ts";
import { ownSuffix } from "../files/publish-file.ts";

/** Locked packages of PyPI for a Python program. */
export interface PythonPackages {
  /** Name in messages and of the folder. */
  readonly name: string;
  /** Arguments of each `pip install`, in order; paths of lock files are relative to `model-tools/python/`. */
  readonly installs: readonly (readonly string[])[];
}

export interface PythonOptions {
  readonly onProgress: (line: string) => void;
  readonly signal?: AbortSignal;
  /** @default `$XDG_CACHE_HOME/clipstack` or `~/.cache/clipstack` */
  readonly cacheDir?: string;
  /** @default "python3" */
  readonly program?: string;
}

/** PyTorch with CUDA from PyPI (3 GB download, 7 GB on disk), or without CUDA from its own index (0.3 GB). */
export const pytorchSources = ["pypi", "cpu"] as const;
export type PytorchSource = (typeof pytorchSources)[number];

const pytorchIndex = "https://download.pytorch.org/whl/cpu";

export function pytorchPackages(source: PytorchSource): PythonPackages {
  const others = ["--require-hashes", "-r", "export/requirements.txt"];
  const installs =
    // PyTorch for macOS never includes CUDA
    source === "pypi" || process.platform === "darwin"
      ? [[...others, "-r", "export/torch-pypi.txt"]]
      : [["--index-url", pytorchIndex, "-r", "export/torch-cpu.txt"], others];
  return { name: "pytorch", installs };
}

export const onnxruntimePackages: PythonPackages = {
  name: "onnxruntime",
  installs: [["--require-hashes", "-r", "convert/requirements.txt"]],
};

/** DALI with its decoders, for Linux: 1.1 GB on disk. */
export const daliPackages: PythonPackages = {
  name: "dali",
  installs: [["--require-hashes", "-r", "dali/requirements.txt"]],
};

/** Runs a program of `model-tools/python/` and returns the last line of its output. */
export async function runPython(
  python: string,
  program: string,
  args: readonly string[],
  signal?: AbortSignal,
): Promise<string> {
  const result = await execute(python, [join(repository, program), ...args], {
    timeoutMs: programTimeoutMs,
    env: { PYTHONNOUSERSITE: "1", PYTHONUTF8: "1" },
    signal,
  });
  if (result.isMissing) throw new UserError(`--python must be an executable, got '${python}'`);
  if (result.exitCode === 0) return result.stdout.trim().split("\n").at(-1) ?? "";
  throw new UserError(`${program} failed: ${result.stderr.trim().split("\n").at(-1)}`);
}

const programTimeoutMs = 30 * 60_000;

/**
 * Runs a program without a terminal.
 *
 * @throws the reason of an aborted signal, and nothing else
 */
export async function execute(
  program: string,
  args: readonly string[],
  {
    timeoutMs,
    env,
    signal,
  }: {
    readonly timeoutMs: number;
    readonly env?: Readonly<Record<string, string>>;
    readonly signal?: AbortSignal | undefined;
  },
) {
  const { code, exitCode, stdout, stderr } = await execa(program, [...args], {
    ...{ env: { LC_ALL: "C", ...env }, stdin: "ignore", reject: false },
    ...{ timeout: timeoutMs, forceKillAfterDelay: 1_000, cancelSignal: signal },
  });
  signal?.throwIfAborted();
  return {
    isMissing: code === "ENOENT",
    exitCode: exitCode ?? -1,
    stdout: stdout ?? "",
    stderr: stderr ?? "",
  };
}

const repository = fileURLToPath(new URL("./", import.meta.url));
/** Long, because PyTorch with CUDA is 3 GB. */
const installTimeoutMs = 2 * 3600_000;

/**
 * Returns the Python of a virtual environment with locked packages, installed if it is missing. Each set of packages and each Python
 * has its own environment. Safe to call from several processes concurrently.
 */
export async function ensurePython(
  { name, installs }: PythonPackages,
  options: PythonOptions,
): Promise<string> {
  const { onProgress, signal, program = "python3" } = options;
  const python = (file: string, args: readonly string[], timeoutMs = 300_000) =>
    execute(file, args, { timeoutMs, signal });
  const { cache, folder, steps } = await environmentOf({ name, installs }, options);
  if (existsSync(join(folder, "complete"))) return join(folder, "bin", "python");

  onProgress(`installing ${name} into ${folder}, once …`);
  // renamed once complete; `python -m` works after the move
  const part = `${folder}.${ownSuffix()}.part`;
  const fail = (step: string, { stdout, stderr }: { stdout: string; stderr: string }) => {
    const last = `${stdout}\n${stderr}`.trim().split("\n").at(-1) ?? "";
    return new UserError(`${name} cannot be installed: ${step}: ${last.slice(0, 300)}`);
  };
  try {
    await mkdir(cache, { recursive: true });
    const venv = await python(program, ["-m", "venv", part]);
    if (venv.exitCode !== 0) throw fail(`${program} -m venv (python3-venv on Debian)`, venv);
    const venvPython = join(part, "bin", "python");
    for (const args of steps) {
      const install = ["-m", "pip", "install", "--quiet", "--no-input", "--no-deps"];
      const pip = [...install, "--only-binary", ":all:", ...args];
      const installed = await python(venvPython, pip, installTimeoutMs);
      if (installed.exitCode !== 0) throw fail("pip", installed);
    }
    await writeFile(join(part, "complete"), "");
    await rename(part, folder).catch((error: NodeJS.ErrnoException) => {
      // another process has completed the same environment
      if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
    });
  } finally {
    await rm(part, { recursive: true, force: true });
  }
  return join(folder, "bin", "python");
}

/** Returns the Python of {@link ensurePython} if it is installed. */
export async function installedPython(
  packages: PythonPackages,
  options: Omit<PythonOptions, "onProgress">,
): Promise<string | undefined> {
  try {
    const { folder } = await environmentOf(packages, options);
    return existsSync(join(folder, "complete")) ? join(folder, "bin", "python") : undefined;
  } catch (error) {
    if (error instanceof UserError) return undefined;
    throw error;
  }
}

/** Folder of the virtual environment of some packages, and the arguments of each `pip install`. */
async function environmentOf(
  { name, installs }: PythonPackages,
  { signal, cacheDir, program = "python3" }: Omit<PythonOptions, "onProgress">,
) {
  const print = "import sys; print(sys.version, sys.base_prefix)";
  const version = await execute(program, ["-c", print], { timeoutMs: 300_000, signal });
  const [, minor] = /^3\.(\d+)\./.exec(version.stdout) ?? [];
  if (!(Number(minor) >= 11)) {
    const got = version.exitCode === 0 ? version.stdout.split(" ")[0] : "none";
    throw new UserError(
      `${program} must be Python 3.11 or newer, got ${got}; select another with --python`,
    );
  }
  const cache =
    cacheDir ?? join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "clipstack");
  const hash = createHash("sha256").update(version.stdout);
  const steps = installs.map((args) =>
    args.map((arg) => (arg.endsWith(".txt") ? join(repository, arg) : arg)),
  );
  for (const arg of steps.flat()) hash.update(arg.endsWith(".txt") ? await readFile(arg) : arg);
  return { cache, folder: join(cache, `${name}-${hash.digest("hex").slice(0, 16)}`), steps };
}
