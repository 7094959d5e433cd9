import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const folder = fileURLToPath(new URL("../../../.ci/", import.meta.url));

/** What a script of `.ci/` prints, or why it cannot be had here. They keep what they make in the user's cache folder. */
export async function ciScript(
  name: "python-venv" | "real-triton",
  args: readonly string[] = [],
): Promise<{ readonly path: string; readonly missing: string }> {
  try {
    const { stdout } = await promisify(execFile)(join(folder, name), args, { timeout: 600_000 });
    return { path: stdout.trim(), missing: "" };
  } catch (error) {
    const { stderr = "", message } = error as { stderr?: string; message: string };
    const lines = (stderr || message).trim().split("\n");
    return { path: "", missing: lines.at(-1) ?? "" };
  }
}

/** NVIDIA's Python client, as it comes from PyPI. */
export async function pythonWithTritonClient(): Promise<{
  readonly path: string;
  readonly missing: string;
}> {
  const venv = await ciScript("python-venv", [
    "tritonclient",
    "tritonclient[all]==2.73.0",
    "numpy==2.2.6",
  ]);
  return { ...venv, path: join(venv.path, "bin", "python") };
}
