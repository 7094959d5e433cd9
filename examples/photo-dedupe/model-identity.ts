import { DedupeError } from "./dedupe-error.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { cosine, sameModelCosine, weightsOf } from "./probe.ts";
import { vectorBytes, vectorOf } from "./vectors.ts";

export interface KnownModel {
  readonly id: number;
  /** Where it was first met. */
  readonly label: string;
  readonly weights: "random" | "unknown";
  readonly probe: Float32Array;
}

interface ModelRow {
  readonly id: number;
  readonly label: string;
  readonly weights: "random" | "unknown";
  readonly probe: Uint8Array;
}

/** The model that answers so to the probe; it is written down when it is met for the first time. */
export function identifyModel(
  database: PhotoDatabase,
  probe: Float32Array,
  label: string,
): KnownModel {
  const known = modelsOf(database).find((model) => isModel(model, probe));
  if (known !== undefined) return known;
  database.run("INSERT INTO models (label, probe, weights) VALUES (?, ?, ?)", [
    label,
    vectorBytes(probe),
    weightsOf(probe),
  ]);
  return modelsOf(database).at(-1)!;
}

export function isModel(model: KnownModel, probe: Float32Array): boolean {
  return probe.length === model.probe.length && cosine(model.probe, probe) >= sameModelCosine;
}

function modelsOf(database: PhotoDatabase): readonly KnownModel[] {
  return database
    .all<ModelRow>("SELECT id, label, weights, probe FROM models ORDER BY id")
    .map((row) => ({ ...row, probe: vectorOf(row.probe) }));
}

/**
 * The one model that all photos which are there were embedded with; `undefined` where none was.
 *
 * @throws {DedupeError} when there are several: their embeddings cannot be compared
 */
export function modelInUse(database: PhotoDatabase): KnownModel | undefined {
  const used = database.all<{ readonly model_id: number; readonly photos: number }>(
    `SELECT e.model_id, count(*) AS photos FROM embeddings e JOIN photos p ON p.id = e.photo_id
     WHERE p.state = 'present' GROUP BY e.model_id ORDER BY photos DESC`,
  );
  if (used.length > 1) {
    const counts = used.map(({ photos }) => photos).join(" and ");
    throw new DedupeError(
      "failed",
      `${counts} photos were embedded with different models: run 'clipstack-dedupe embed --replace'`,
    );
  }
  return modelsOf(database).find(({ id }) => id === used[0]?.model_id);
}
