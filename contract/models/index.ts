import { type ModelSpec, withModalities } from "../model-spec.ts";
import { dinov2Base } from "./dinov2-base.ts";
import { dinov2Small } from "./dinov2-small.ts";
import { efficientnetLite0 } from "./efficientnet-lite0.ts";
import { mobileclip2S0 } from "./mobileclip2-s0.ts";
import { mobileclip2S2 } from "./mobileclip2-s2.ts";
import { openclipVitB16 } from "./openclip-vit-b16.ts";
import { openclipVitB32 } from "./openclip-vit-b32.ts";
import { openclipVitL14 } from "./openclip-vit-l14.ts";
import { siglip2Base224 } from "./siglip2-base-224.ts";

/**
 * Model catalogue. Documentation lists the models in this order.
 *
 * A new model is a file beside this one, whose weights pin `revision` and SHA-256, and a line here.
 * An OpenCLIP or other vision transformer also needs its architecture:
 * - `exportArchitectures` in `contract/models/trained-weights.ts`, for `clipstack model export`;
 * - `known` in `model-tools/generate/architectures.ts` and, for its text tower,
 *   `model-tools/generate/text-architectures.ts`, without which generated files have a small
 *   stand-in.
 *
 * Each model needs its normalisation in `NORMALISATIONS` of
 * `inference/preprocess/test-preprocess-reference.py`. `npm run render` updates the documentation;
 * `model-tools/generate/catalogue.test.ts` names what is missing.
 */
export const catalogueSpecs: readonly ModelSpec[] = [
  openclipVitB32,
  openclipVitB16,
  openclipVitL14,
  siglip2Base224,
  dinov2Small,
  dinov2Base,
  mobileclip2S0,
  mobileclip2S2,
  efficientnetLite0,
];

export const modelCatalogue: ReadonlyMap<string, ModelSpec> = new Map(
  catalogueSpecs.map((spec) => [spec.name, spec]),
);

/** Names of the catalogue, which environments use in `models:`. */
export const catalogueNames: readonly string[] = catalogueSpecs.map(({ name }) => name);

/** Model of an environment, a command or a server that names none. */
export const defaultModel: ModelSpec = openclipVitB32;

/** Models of an environment that lists none: the image tower of the default model. */
export const defaultModels: readonly ModelSpec[] = [withModalities(defaultModel, ["image"])];
