import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const folder = fileURLToPath(new URL("../../.ci/", import.meta.url));

interface Found {
  readonly path: string;
  /** Why it is not there; empty where it is. */
  readonly missing: string;
}

/** What a script of `.ci/` prints, or why it cannot be had here. They keep what they make in the user's cache folder. */
export async function ciScript(
  name: "python-venv" | "real-triton" | "hey",
  ...args: readonly string[]
): Promise<Found> {
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
export async function pythonWithTritonClient(): Promise<Found> {
  const { path, missing } = await ciScript("python-venv", "tritonclient");
  return { path: join(path, "bin", "python"), missing };
}
