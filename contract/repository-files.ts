import { instancesText } from "./deployed-model-config.ts";
import { daliFiles, type ModelConfig, modelConfig, tensorrtFile } from "./model-config.ts";
import { printModelConfig } from "./print-model-config.ts";
import {
  isEnsembleKind,
  type ModelKind,
  type TritonSpec,
  tritonModelName,
} from "./triton-models.ts";

/** Files of Triton's model repository that follow from a model spec. Paths are relative to the repository. */

/** Text file of the repository. */
export interface RepositoryFile {
  /** For example `openclip_vit_b32/config.pbtxt`. */
  readonly path: string;
  readonly text: string;
}

/**
 * `<model>/config.pbtxt` of a model kind, which names no device and serves every number of GPUs.
 *
 * @param heading - First line, without `# `.
 */
export function configurationFile(
  spec: TritonSpec,
  modelKind: ModelKind,
  heading: string,
): RepositoryFile {
  const config = modelConfig(spec, modelKind);
  return {
    path: `${tritonModelName(spec, modelKind)}/config.pbtxt`,
    text: `# ${heading}\n# ${commentOf(config)}\n\n${printModelConfig(config)}`,
  };
}

/** Path of the file of version 1 that a model kind executes; a link to another model's file if it has `target`. */
export interface VersionFile {
  readonly path: string;
  /** Relative to the folder of `path`. */
  readonly target?: string;
}

/** Model kinds that execute the file of another one, and its name there. */
const sharedFiles: Partial<Record<ModelKind, readonly [ModelKind, string]>> = {
  trt: ["fp32", "model.onnx"],
  u8: ["fp32", "model.fp32-optimised.onnx"],
  "text-trt": ["text", "model.onnx"],
};

/** Path of the ONNX file of a model kind in a model repository: `openclip_vit_b32/1/model.onnx`. */
export function modelPath(spec: Pick<TritonSpec, "name">, modelKind: ModelKind): string {
  return `${tritonModelName(spec, modelKind)}/1/model.onnx`;
}

/** Model kind whose file is that of a tower in FP32. */
export const fp32Kinds = { image: "fp32", text: "text" } as const;

/** Model files of version 1 of a model kind, the FP32 file first. An ensemble has none: its version folder is empty. */
export function versionFiles(spec: TritonSpec, modelKind: ModelKind): readonly VersionFile[] {
  if (isEnsembleKind(modelKind)) return [];
  if (modelKind === "preprocess")
    return [{ path: `${tritonModelName(spec, modelKind)}/1/model.py` }];
  if (modelKind === "dali-preprocess") return [{ path: daliPipelinePath(spec, "gpu") }];
  const path = modelPath(spec, modelKind);
  const [owner, file] = sharedFiles[modelKind] ?? [];
  if (owner === undefined) return [{ path }];
  const folder = `../../${tritonModelName(spec, owner)}/1`;
  return [
    { path, target: `${folder}/${file}` },
    ...(modelKind === "u8"
      ? []
      : [
          {
            path: path.replace(/[^/]+$/, tensorrtFile),
            target: `${folder}/${tensorrtFile}`,
          },
        ]),
  ];
}

/** Path of the serialized DALI pipeline for a device in a model repository: `openclip_vit_b32_dali_preprocess/1/model.dali`. */
export function daliPipelinePath(
  spec: Pick<TritonSpec, "name">,
  device: keyof typeof daliFiles,
): string {
  return `${tritonModelName(spec, "dali-preprocess")}/1/${daliFiles[device]}`;
}

function commentOf(config: ModelConfig): string {
  if (config.ensemble_scheduling !== undefined) {
    return "The configurations of its models select their devices.";
  }
  return config.instance_group === undefined
    ? "No instance group: Triton creates one instance per visible GPU."
    : instancesText(config);
}
