import { createHash } from "node:crypto";
import { createReadStream, type Stats } from "node:fs";
import { readFile, realpath, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { modelPrecisions } from "../../contract/server/server-env.ts";
import { externalDataOf } from "./external-data.ts";

/** Manifest `<file>.json`: identity and origin of a model file. Part of every record. */
export const modelSidecar = z.object({
  /** Incremented when a field changes its meaning. */
  schema: z.literal(1),
  /** SHA-256 of the model, as {@link modelSha256}. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  bytes: z.int().min(1),
  source: z.enum(["generated", "pulled", "exported", "imported", "derived", "unknown"]),
  /** `random`, or open_clip's name of the weights, for example `laion2b_s34b_b79k`. */
  weights: z.string().min(1),
  /** Name of the model spec that the file was written for. */
  model: z.string().optional(),
  seed: z.int().optional(),
  /** For example `vit-b-32`; `tiny` and `stand-in` have only the tensors of the model. */
  architecture: z.string().optional(),
  opset: z.int().optional(),
  /** Published source of a pulled file: `owner/name@commit path`. */
  origin: z.string().optional(),
  /** SHA-256 of the source of a prepared file, or of the download of a converted pulled file. */
  derivedFrom: z.string().optional(),
  /** Changes made to a pulled file; `graph` or `input` of an optimised one. */
  parts: z.array(z.string()).optional(),
  precision: z.enum(modelPrecisions).optional(),
  /** Version of each tool that wrote a prepared file. */
  versions: z.record(z.string(), z.string()).optional(),
  /** Agreement of a prepared file's embeddings with those of its source, on photos. */
  agreement: z
    .object({
      images: z.int(),
      minCosine: z.number(),
      meanCosine: z.number(),
      /** Largest difference of two values, relative to the largest value. */
      maxDifference: z.number(),
      /** Share of the photos whose nearest neighbour is the same. */
      nearestNeighbours: z.number().optional(),
    })
    .optional(),
});
export type ModelInfo = z.infer<typeof modelSidecar>;

/** Path of the sidecar of a model file. */
export function sidecarPath(file: string): string {
  return `${file}.json`;
}

/**
 * Returns the manifest of a model file; links are followed. If there is no sidecar, or its size or checksum differs from the file's,
 * the checksum is computed and `source` and `weights` are `unknown`. The checksum is also computed if the file is newer than its
 * sidecar, because files of one architecture have the same size with any weights.
 *
 * @throws {Error} with one line if the file is missing or is not a regular file.
 */
export async function modelInfo(file: string): Promise<ModelInfo> {
  const target = await realpath(file).catch((cause: unknown) => {
    throw new Error(`model file '${file}' does not exist`, { cause });
  });
  const stats = await stat(target);
  if (!stats.isFile()) throw new Error(`model file '${file}' is not a file`);
  const sidecar = await readSidecar(target);
  const fits = sidecar?.bytes === stats.size;
  if (fits && (await isOlder(stats, sidecarPath(target)))) return sidecar;
  const sha256 = await modelSha256(file);
  if (fits && sidecar.sha256 === sha256) return sidecar;
  return {
    schema: 1,
    sha256,
    bytes: stats.size,
    source: "unknown",
    weights: "unknown",
  };
}

/** SHA-256 of a file, lower-case hexadecimal. */
export async function sha256Of(file: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) {
    hash.update(chunk as Buffer);
  }
  return hash.digest("hex");
}

/**
 * SHA-256 of a model, lower-case hexadecimal: of its file, or with external data, of the concatenated checksums of the file and its
 * data files in the order of their names, which Terraform can compute too.
 *
 * @throws {Error} with one line if the file or its external data is missing
 */
export async function modelSha256(file: string): Promise<string> {
  const data = externalDataOf(file);
  const checksums = [await sha256Of(file)];
  for (const name of data) checksums.push(await sha256Of(join(dirname(file), name)));
  if (data.length === 0) return checksums[0]!;
  return createHash("sha256").update(checksums.join("")).digest("hex");
}

/** Longest time between the sidecar and the file in one copy or download, in milliseconds. */
const maxCopyGapMs = 60_000;

/** Returns whether the file was written before its sidecar and moved with it. */
async function isOlder(file: Stats, sidecar: string): Promise<boolean> {
  const { mtimeMs, ctimeMs } = await stat(sidecar);
  return file.mtimeMs <= mtimeMs && file.ctimeMs <= ctimeMs + maxCopyGapMs;
}

/** Reads the sidecar of a model file; `undefined` if it is missing or invalid. */
export async function readSidecar(file: string): Promise<ModelInfo | undefined> {
  const text = await readFile(sidecarPath(file), "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  try {
    return modelSidecar.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}
