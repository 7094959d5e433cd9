import { readdirSync } from "node:fs";
import { join } from "node:path";
import { readEnvironment } from "../../artefact/artefact.ts";
import type { PytorchCommand } from "../../artefact/simulation.ts";
import { UserError } from "../../contract/user-error.ts";
import { packageFolder } from "../../model-tools/files/folders.ts";
import {
  ensurePython,
  installedPython,
  type PythonOptions,
  type PythonPackages,
  pytorchPackages,
  pytorchSources,
} from "../../model-tools/python/python-environment.ts";
import type { SynthesizedFile } from "../shared/artefact.ts";
import { runProgram } from "../shared/run-program.ts";

/** Command of the PyTorch baseline on this machine, or the reason why it cannot run. */
export interface LocalPytorch {
  readonly pytorch?: PytorchCommand;
  readonly noPytorch?: string;
}

/** Packages of the baseline beside {@link pytorchPackages}, with the same versions where both have a package. */
const pytorchBaselinePackages: PythonPackages = {
  name: "pytorch-baseline",
  installs: [["--require-hashes", "-r", "../../bench/baselines/pytorch/requirements.txt"]],
};

type Options = Pick<PythonOptions, "onProgress" | "signal">;

/** Variable with a Python that has PyTorch. */
const variable = "CLIPSTACK_PYTHON_TORCH";

const needed = ["torch", "torchvision", "open_clip", "onnx"];
const web = ["fastapi", "uvicorn", "python_multipart"];

/** Returns the command of the PyTorch baseline; empty if no environment has the baseline. */
export async function pytorchFor(
  files: readonly Pick<SynthesizedFile, "file" | "displayPath">[],
  options: Options,
): Promise<LocalPytorch> {
  const hasBaseline = files.some(({ file, displayPath }) =>
    readEnvironment(file, displayPath).services.some(({ kind }) => kind === "baseline"),
  );
  return hasBaseline ? localPytorch(options) : {};
}

/**
 * Returns the command of the baseline, with PyTorch from `CLIPSTACK_PYTHON_TORCH` or the environment of `clipstack model export`, which
 * has several GB and is not installed here. The packages of its web server are installed once.
 */
export async function localPytorch(options: Options): Promise<LocalPytorch> {
  const { signal } = options;
  const python = process.env[variable]?.trim() || (await exportPython(signal));
  if (python === undefined) {
    const fix = `set ${variable} to a Python that has ${needed.join(", ")}, or install it with 'npx clipstack model export'`;
    return { noPytorch: `there is no PyTorch: ${fix}` };
  }
  const missing = await missingModules(python, [...needed, ...web], signal);
  if (missing === undefined) return { noPytorch: `${variable}: '${python}' is not a Python` };
  const lacks = needed.filter((name) => missing.includes(name));
  if (lacks.length > 0) return { noPytorch: `${python} has no ${lacks.join(", ")}` };
  try {
    const added: Record<string, string> =
      missing.length === 0 ? {} : { PYTHONPATH: await webPackages(python, options) };
    return {
      pytorch: {
        // -B: no bytecode in the checkout
        command: [python, "-B", join(packageFolder, "bench/baselines/pytorch/serve.py")],
        env: { PYTHONNOUSERSITE: "1", PYTHONUTF8: "1", ...added },
      },
    };
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    return { noPytorch: error.message };
  }
}

async function exportPython(signal: AbortSignal | undefined): Promise<string | undefined> {
  for (const source of pytorchSources) {
    const found = await installedPython(pytorchPackages(source), { signal });
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Returns the Python modules that are missing, without importing any; undefined if the program is not Python. */
async function missingModules(
  python: string,
  modules: readonly string[],
  signal: AbortSignal | undefined,
): Promise<readonly string[] | undefined> {
  const script =
    "import sys; from importlib.util import find_spec; print(*(m for m in sys.argv[1:] if find_spec(m) is None))";
  const result = await runProgram(python, ["-c", script, ...modules], {
    timeoutMs: 60_000,
    signal,
  });
  signal?.throwIfAborted();
  return result.exitCode === 0 ? result.stdout.trim().split(" ").filter(Boolean) : undefined;
}

/** Folder of the packages of the web server, for the version of a Python. */
async function webPackages(python: string, options: Options): Promise<string> {
  const program = await ensurePython(pytorchBaselinePackages, { ...options, program: python });
  const library = join(program, "../../lib");
  const [version = ""] = readdirSync(library).filter((name) => name.startsWith("python3"));
  return join(library, version, "site-packages");
}
