import { instancesText } from "./deployed-model-config.ts";
import {
  daliFiles,
  type ModelConfig,
  type ModelConfigs,
  type ModelVariant,
  modelConfig,
  modelVariants,
} from "./model-config.ts";
import { printModelConfig } from "./print-model-config.ts";
import {
  isEnsembleVariant,
  type TritonSpec,
  type TritonVariant,
  tritonModelName,
} from "./triton-models.ts";

/** Files of Triton's model repository that follow from a model spec. Paths are relative to the repository. */

/** Text file of the repository. */
export interface RepositoryFile {
  /** For example `openclip_vit_b32/configs/cpu.pbtxt`. */
  readonly path: string;
  readonly text: string;
}

/**
 * `<model>/config.pbtxt` of a variant, and `configs/<name>.pbtxt` of each configuration variant that differs from it: Triton uses
 * `config.pbtxt` if a configuration variant has no file.
 *
 * @param heading - First line of every file, without `# `.
 */
export function configurationFiles(
  spec: TritonSpec,
  variant: TritonVariant,
  heading: string,
): readonly RepositoryFile[] {
  const configs = modelConfig(spec, variant);
  const folder = tritonModelName(spec, variant);
  return [
    {
      path: `${folder}/config.pbtxt`,
      text: textOf(configs.default, [heading, commentOf(configs.default)]),
    },
    ...differing(configs).map((name) => ({
      path: `${folder}/configs/${name}.pbtxt`,
      text: textOf(configs[name], [
        heading,
        `Variant ${name}, chosen with --model-config-name=${name}.`,
        instancesText(configs[name]),
      ]),
    })),
  ];
}

/** Path of the file of version 1 that a variant executes; a link to another model's file if it has `target`. */
export interface VersionFile {
  readonly path: string;
  /** Relative to the folder of `path`. */
  readonly target?: string;
}

/** Variants that execute the file of another one, and its name there. */
const sharedFiles: Partial<Record<TritonVariant, readonly [TritonVariant, string]>> = {
  trt: ["fp32", "model.onnx"],
  u8: ["fp32", "model.fp32-optimised.onnx"],
  "text-trt": ["text", "model.onnx"],
};

/**
 * File of a tower that is half precision inside, with FP32 inputs and outputs, beside its `model.onnx`: the precision of a TensorRT 11
 * engine is that of the graph. `clipstack model convert --precision fp16 --keep-graph` writes it.
 */
export const tensorrtFile = "model.trt-fp16.onnx";

/** Path of the ONNX file of a variant in a model repository: `openclip_vit_b32/1/model.onnx`. */
export function modelPath(spec: Pick<TritonSpec, "name">, variant: TritonVariant): string {
  return `${tritonModelName(spec, variant)}/1/model.onnx`;
}

/** Variant whose file is that of a tower in FP32. */
export const fp32Variants = { image: "fp32", text: "text" } as const;

/** Model file of version 1 of a variant; undefined for an ensemble, whose version folder is empty. */
export function versionFile(spec: TritonSpec, variant: TritonVariant): VersionFile | undefined {
  if (isEnsembleVariant(variant)) return undefined;
  if (variant === "preprocess") return { path: `${tritonModelName(spec, variant)}/1/model.py` };
  if (variant === "dali-preprocess") return { path: daliPipelinePath(spec, "gpu") };
  const [owner, file] = sharedFiles[variant] ?? [];
  return {
    path: modelPath(spec, variant),
    ...(owner !== undefined && { target: `../../${tritonModelName(spec, owner)}/1/${file}` }),
  };
}

/** Path of the serialized DALI pipeline for a device in a model repository: `openclip_vit_b32_dali_preprocess/1/model.dali`. */
export function daliPipelinePath(
  spec: Pick<TritonSpec, "name">,
  device: keyof typeof daliFiles,
): string {
  return `${tritonModelName(spec, "dali-preprocess")}/1/${daliFiles[device]}`;
}

function differing(configs: ModelConfigs): readonly ModelVariant[] {
  return modelVariants.filter((variant) => configs[variant] !== configs.default);
}

function commentOf(config: ModelConfig): string {
  if (config.ensemble_scheduling !== undefined) {
    return "For every variant: the configurations of its models select their devices.";
  }
  return config.instance_group === undefined
    ? "No instance group: Triton creates one instance per visible GPU."
    : `For every variant. ${instancesText(config)}`;
}

function textOf(config: ModelConfig, comments: readonly string[]): string {
  return `${comments.map((line) => `# ${line}`).join("\n")}\n\n${printModelConfig(config)}`;
}
