import { backendKinds, type TunableKind } from "../../contract/deployed-model-config.ts";
import type { ServedKind } from "../../contract/environment.ts";
import { textTowerOf, tokenizerFile as tokenizerFileOf } from "../../contract/model-shapes.ts";
import type { ImageTower, Modality, ModelSpec, TextTower } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";

/** Towers of the models that a service serves. */

/** One model file: the image or the text tower of a model. */
export interface ServedTower {
  readonly spec: ModelSpec;
  readonly modality: Modality;
  readonly tower: ImageTower | TextTower;
}

/** Model kinds that a service can serve from one file per tower. */
export type FileKind = Extract<ServedKind, TunableKind>;

/** Towers of some models, in their order, images first. */
export function servedTowers(models: readonly ModelSpec[]): readonly ServedTower[] {
  return models.flatMap((spec) =>
    (["image", "text"] as const).flatMap((modality): ServedTower[] => {
      const tower = spec.towers[modality];
      return tower === undefined ? [] : [{ spec, modality, tower }];
    }),
  );
}

/** Model kind of a tower in Triton, if a service serves images in `modelKind`. */
export function towerKind({ modality }: ServedTower, modelKind: FileKind): TunableKind {
  if (modality === "image") return modelKind;
  return backendKinds[modelKind === "trt" ? "tensorrt" : "onnxruntime"].text;
}

/** Folder of a tower in the model repository, and its name in requests. */
export function towerFolder(tower: ServedTower, modelKind: FileKind): string {
  return tritonModelName(tower.spec, towerKind(tower, modelKind));
}

/**
 * Suffix of the ids and names of a tower's objects: `-dinov2-small`, `-openclip-vit-b32-text`. Empty for the image tower of the default
 * model, the only one that earlier versions deployed, so that its objects keep their addresses.
 */
export function towerSuffix({ spec, modality }: ServedTower): string {
  if (modality === "text") return `-${spec.name}-text`;
  return spec.name === defaultModel.name ? "" : `-${spec.name}`;
}

/** Tokenizer file beside the text tower; CLIP's vocabulary is in a package of the server. */
export function tokenizerFile({ spec, modality }: ServedTower): string | undefined {
  return modality === "text" ? tokenizerFileOf(textTowerOf(spec).input) : undefined;
}
