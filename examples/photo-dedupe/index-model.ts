import sharp from "sharp";
import { DedupeError } from "./dedupe-error.ts";
import type { PhotoDatabase } from "./photo-database.ts";

/** `random`: weights of `clipstack model generate`, whose embeddings are unrelated to the content. */
export type Weights = "random" | "unknown";

/** Model with embeddings in the index. The name is that of its spec; the weights are identified by their embedding of a probe picture. */
export interface IndexModel {
  readonly id: number;
  readonly name: string;
  /** float32 values of an embedding. */
  readonly width: number;
  readonly weights: Weights;
}

interface ModelRow extends IndexModel {
  /** JSON. */
  readonly probe: string;
}

/** Large enough that no model of the catalogue enlarges it much. */
const side = 256;

/** Returns the probe picture: a PNG file, which every service resizes in the same way. */
export async function probePicture(): Promise<Uint8Array> {
  const pixels = Buffer.alloc(side * side * 3);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const disc = (x - 150) ** 2 + (y - 90) ** 2 < 3_600 ? 90 : 0;
      const board = ((x >> 4) + (y >> 5)) % 2 === 0 ? 40 : 0;
      const at = (y * side + x) * 3;
      pixels[at] = Math.min(255, x + disc);
      pixels[at + 1] = Math.min(255, y + board);
      pixels[at + 2] = ((x * y) >> 8) ^ board;
    }
  }
  return sharp(pixels, { raw: { width: side, height: side, channels: 3 } })
    .png()
    .toBuffer();
}

/** Minimum cosine of two embeddings of the probe by the same model. Precisions differ by less, other weights by more. */
const sameModelCosine = 0.99;

/** Dot product: the cosine of two unit vectors. */
export function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

export interface UseModelOptions {
  /** Name of the model's spec. */
  readonly model: string;
  /** Location of the model, for the error message. */
  readonly location: string;
  /** Whether embeddings by other weights are removed; otherwise they are an error. */
  readonly replace: boolean;
}

/**
 * Records the service's model. Embeddings of other models stay in the index.
 *
 * @param probe - Embedding of the probe picture.
 * @throws {DedupeError} if the index has embeddings by a model of this name with other weights and `replace` is false
 */
export function useModel(
  database: PhotoDatabase,
  probe: Float32Array,
  { model: name, location, replace }: UseModelOptions,
): IndexModel {
  const known = database.get<ModelRow>("SELECT * FROM models WHERE name = ?", name);
  if (known !== undefined && isSameModel(known, probe)) return known;
  if (known !== undefined && !replace && hasEmbeddings(database, known)) {
    throw new DedupeError(
      "failed",
      `'${database.file}' has embeddings by another '${name}' than that of ${location}: use that one, or embed all again with --replace`,
    );
  }
  database.transaction(() => {
    if (known !== undefined) removeModel(database, known);
    database.run(
      "INSERT INTO models (name, width, probe, weights) VALUES (?, ?, ?, ?)",
      name,
      probe.length,
      JSON.stringify([...probe]),
      weightsOf(probe),
    );
  });
  return database.get<ModelRow>("SELECT * FROM models WHERE name = ?", name)!;
}

function isSameModel({ width, probe }: ModelRow, found: Float32Array): boolean {
  return width === found.length && cosine(JSON.parse(probe), found) >= sameModelCosine;
}

function hasEmbeddings(database: PhotoDatabase, { id }: IndexModel): boolean {
  return database.get("SELECT 1 FROM embeddings WHERE model = ? LIMIT 1", id) !== undefined;
}

function removeModel(database: PhotoDatabase, { id }: IndexModel): void {
  for (const table of ["pairs", "cells", "embeddings"]) {
    database.run(`DELETE FROM ${table} WHERE model = ?`, id);
  }
  database.run("DELETE FROM models WHERE id = ?", id);
}

/**
 * Returns the model with embeddings in the index.
 *
 * @param name - Required if there are several.
 * @throws {DedupeError} if there is none of this name, or there are several and `name` is undefined
 */
export function findModel(database: PhotoDatabase, name?: string): IndexModel {
  const models = database
    .all<ModelRow>("SELECT * FROM models ORDER BY name")
    .filter((model) => hasEmbeddings(database, model));
  const names = models.map((model) => model.name).join(", ");
  if (models.length === 0) {
    throw new DedupeError(
      "failed",
      "no embeddings: run 'clipstack-dedupe embed' first, or group with --by hash",
    );
  }
  const [model] = name === undefined ? models : models.filter((found) => found.name === name);
  if (model !== undefined && (name !== undefined || models.length === 1)) return model;
  const problem = name === undefined ? "is required" : `'${name}' has no embeddings in the index`;
  throw new DedupeError("usage", `--model ${problem}: must be one of ${names}`);
}

/** First values of the probe's embedding by the random models of `clipstack model generate`: vit-b-32 and tiny. */
const randomModels: readonly (readonly number[])[] = [
  [-0.0259, 0.0091, -0.0132, -0.0269, -0.0061, -0.0006, 0.0613, -0.0281, -0.0429, -0.0541],
  [-0.0147, 0.0676, -0.0268, -0.0585, 0.0406, -0.0106, 0.0035, -0.0362, -0.0046, 0.0388],
];

function weightsOf(probe: Float32Array): Weights {
  const random = randomModels.some((values) =>
    values.every((value, i) => Math.abs(value - probe[i]!) < 0.01),
  );
  return random ? "random" : "unknown";
}

/** Printed with every result of random weights. */
export const randomWeightsText =
  "the model has random weights: the results are for testing and do not reflect the content of the photos";
