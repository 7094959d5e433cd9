import { UserError } from "../../contract/user-error.ts";
import { modelInfo, readSidecar, sidecarPath } from "../../model-tools/model-info.ts";
import { isFolder, sizeOf } from "../../model-tools/publish-file.ts";
import { wholeNumber } from "../option-values.ts";
import { displayPath } from "../project.ts";

/** Converts file errors to user errors. */
export async function ofFiles<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw new UserError((error as Error).message.replace(/^\[\w+\] /, ""), { cause: error });
  }
}

export function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);
}

export function cosineText(value: number): string {
  return value.toFixed(7);
}

/** Rejects overwriting a file that `model generate` did not write. @throws {UserError} */
export async function requireReplaceable(file: string): Promise<void> {
  await requireOwnSidecar(file);
  const info = await modelInfo(file).catch(() => undefined);
  if (info === undefined || info.source === "generated") return;
  const description = `${info.source === "unknown" ? "not of this project" : info.source}, weights ${info.weights}`;
  throw new UserError(`${displayPath(file)} exists (${description}); --force replaces it`);
}

/** Rejects overwriting a sidecar that does not describe a model: `--output package` would replace package.json. @throws {UserError} */
export async function requireOwnSidecar(file: string): Promise<void> {
  const sidecar = sidecarPath(file);
  if ((await sizeOf(sidecar)) === undefined || (await readSidecar(file)) !== undefined) return;
  throw new UserError(
    `${displayPath(sidecar)} exists and does not describe a model; --force replaces it`,
  );
}

/** @throws {UserError} */
export async function requireNoFolder(file: string): Promise<void> {
  if (await isFolder(file)) {
    throw new UserError(`--output must be a file, got the folder '${displayPath(file)}'`);
  }
}

/** Seed of random weights. */
export const seedOf = wholeNumber(-(2 ** 31), 2 ** 32 - 1);
