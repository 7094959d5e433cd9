import { createHash } from "node:crypto";
import { createReadStream, type Stats } from "node:fs";
import { readFile, realpath, stat } from "node:fs/promises";
import { z } from "zod";
import { modelPrecisions } from "../contract/server-env.ts";

/** The manifest `<file>.json`: what a model file is and where it came from. Part of every record. */
export const modelSidecar = z.object({
  /** Bumped when a field changes meaning. */
  schema: z.literal(1),
  /** SHA-256 of the model file, lower-case hexadecimal. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  bytes: z.int().min(1),
  /** Origin of the file. */
  source: z.enum(["generated", "pulled", "exported", "derived", "unknown"]),
  /** `random`, or the name that open_clip gives the weights, for example `laion2b_s34b_b79k`. */
  weights: z.string().min(1),
  /** Seed of random weights. */
  seed: z.int().optional(),
  /** `vit-b-32` or `tiny`. */
  architecture: z.string().optional(),
  /** ONNX operator set. */
  opset: z.int().optional(),
  /** Place where a pulled file was published: `owner/name@commit path`. */
  origin: z.string().optional(),
  /** SHA-256 of the source of a prepared file, or of a pulled file that was changed. */
  derivedFrom: z.string().optional(),
  /** Changes made to a pulled file. */
  parts: z.array(z.string()).optional(),
  /** Precision of a prepared file. */
  precision: z.enum(modelPrecisions).optional(),
  /** Version of each tool that made a prepared file. */
  versions: z.record(z.string(), z.string()).optional(),
  /** Agreement of a prepared file's embeddings with those of its source, on photos. */
  agreement: z
    .object({
      images: z.int(),
      minCosine: z.number(),
      meanCosine: z.number(),
      /** Largest difference of two values, relative to the largest value. */
      maxDifference: z.number(),
    })
    .optional(),
});
export type ModelInfo = z.infer<typeof modelSidecar>;

/** Path of the sidecar of a model file. */
export function sidecarPath(file: string): string {
  return `${file}.json`;
}

/**
 * What is known of a model file; a link is followed. Without a sidecar, or with one that is of another file (the size or
 * the checksum differs), the checksum is computed and `source` and `weights` are `unknown`. The checksum of a file that was
 * put there after its sidecar is computed too: files of one architecture have one size, and other weights.
 *
 * @throws {Error} one line, when the file is missing or not a file.
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
  const sha256 = await sha256Of(target);
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

/** Longest time between the sidecar and the file in one copy or download, in milliseconds. */
const togetherMs = 60_000;

/** Returns whether the file was written before its sidecar and moved with it. */
async function isOlder(file: Stats, sidecar: string): Promise<boolean> {
  const { mtimeMs, ctimeMs } = await stat(sidecar);
  return file.mtimeMs <= mtimeMs && file.ctimeMs <= ctimeMs + togetherMs;
}

/** The sidecar of a model file; `undefined` when there is none that can be read. */
export async function readSidecar(file: string): Promise<ModelInfo | undefined> {
  const text = await readFile(sidecarPath(file), "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  try {
    return modelSidecar.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}
