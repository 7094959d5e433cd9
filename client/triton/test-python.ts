import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const folder = fileURLToPath(new URL("../../.ci/", import.meta.url));

interface InstalledTool {
  readonly path: string;
  /** Reason why the tool is unavailable; otherwise empty. */
  readonly missing: string;
}

/** Runs a script of `.ci/`, which installs a tool in the user's cache folder and prints its path. */
export async function ciScript(
  name: "python-venv" | "real-triton" | "hey",
  ...args: readonly string[]
): Promise<InstalledTool> {
  try {
    const { stdout } = await promisify(execFile)(join(folder, name), args, { timeout: 600_000 });
    return { path: stdout.trim(), missing: "" };
  } catch (error) {
    const { stderr = "", message } = error as { stderr?: string; message: string };
    const lines = (stderr || message).trim().split("\n");
    return { path: "", missing: lines.at(-1) ?? "" };
  }
}

/** Installs NVIDIA's Python client from PyPI, unmodified. */
export async function pythonWithTritonClient(): Promise<InstalledTool> {
  const { path, missing } = await ciScript("python-venv", "tritonclient");
  return { path: join(path, "bin", "python"), missing };
}
