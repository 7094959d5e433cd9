import { resolve } from "node:path";
import { requireTower } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { fp32Kinds } from "../../contract/repository-files.ts";
import { modelFile } from "../generate/generate.ts";
import type { TowerFile } from "./pull.ts";

/** Towers that a command writes, and their files: all towers of the model into the model repository, or one into `output`. */
export function towerFiles(
  spec: ModelSpec,
  { modality, output }: { readonly modality?: Modality; readonly output?: string },
): readonly TowerFile[] {
  if (modality !== undefined) requireTower(spec, modality);
  const all = (["image", "text"] as const).filter((own) => spec.towers[own] !== undefined);
  const chosen = modality === undefined ? all : [modality];
  return output === undefined
    ? chosen.map((own) => ({ modality: own, file: modelFile(spec, fp32Kinds[own]) }))
    : chosen.slice(0, 1).map((own) => ({ modality: own, file: resolve(output) }));
}
