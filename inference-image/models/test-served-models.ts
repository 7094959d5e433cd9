import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { ImageEmbedder } from "./embedder.ts";
import { ServedModels } from "./served-models.ts";

/** Served models for tests: one model with the given embedder of images. */
export function servedImages(
  embedder: ImageEmbedder,
  spec: ModelSpec = defaultModel,
): ServedModels {
  const models = new ServedModels([spec]);
  models.load([{ spec, image: { spec, tower: imageTowerOf(spec), embedder } }]);
  return models;
}
