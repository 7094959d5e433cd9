import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { ownSuffix } from "./publish-file.ts";
import { checkoutRepository } from "./repository.ts";

const commit = z.string().regex(/^[0-9a-f]{40}$/, "must be a commit, 40 hexadecimal digits");
const sha256 = z.string().regex(/^[0-9a-f]{64}$/, "must be 64 lower-case hexadecimal digits");

/** Published file with the weights. */
export const lockedModel = z.strictObject({
  /** Name of the weights in open_clip. */
  weights: z.string().min(1),
  /** Repository on the hub: `owner/name`. */
  repository: z.string().regex(/^[\w.-]+\/[\w.-]+$/, "must be like owner/name"),
  /** Commit, because the content of a branch changes. */
  revision: commit,
  /** Path in the repository. */
  path: z.string().regex(/^[\w.-]+(\/[\w.-]+)*$/, "must be like folder/model.onnx"),
  bytes: z.int().min(1),
  sha256,
  licence: z.string().min(1),
  /** Sources of the licence and of the checksum. */
  note: z.string().optional(),
});
export type LockedModel = z.infer<typeof lockedModel>;

const lockFile = z.strictObject({ schema: z.literal(1), model: lockedModel });

/** Lock file of this checkout. */
export const repositoryLock = join(checkoutRepository, "model.lock.json");

/** @throws {Error} with one line if the file is missing or invalid */
export async function readModelLock(path: string): Promise<LockedModel> {
  const text = await readFile(path, "utf8").catch((cause: unknown) => {
    throw new Error(`lock file '${path}' does not exist or cannot be read`, { cause });
  });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new Error(`${path}: must be JSON: ${(cause as Error).message}`, { cause });
  }
  const parsed = lockFile.safeParse(value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new Error(`${path}: ${issue?.path.join(".") || "the file"}: ${issue?.message}`);
  }
  return parsed.data.model;
}

export async function writeModelLock(path: string, model: LockedModel): Promise<void> {
  const part = `${path}.${ownSuffix()}.part`;
  await writeFile(part, `${JSON.stringify({ schema: 1, model }, null, 2)}\n`);
  await rename(part, path);
}

/** Hugging Face's hub, the default of `HF_ENDPOINT`. */
export const hub = "https://huggingface.co";

/** URL of a locked file on the hub or a mirror. */
export function lockedUrl(
  model: Pick<LockedModel, "repository" | "revision" | "path">,
  endpoint: string,
): URL {
  const base = endpoint.replace(/\/+$/, "");
  return new URL(`${base}/${model.repository}/resolve/${model.revision}/${model.path}`);
}
