import { dirname } from "node:path";
import { tensorrtFile } from "../../contract/model-config.ts";
import { type WeightsPrecision, weightsMiB } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { trainedWeightsCommand } from "../../contract/models/trained-weights.ts";
import { modelPath } from "../../contract/repository-files.ts";
import { firstStronglyTyped } from "../../contract/triton-releases.ts";
import { expression } from "../terraform/expression.ts";
import {
  type FileKind,
  type ServedTower,
  tokenizerFile,
  towerKind,
  towerSuffix,
} from "./served-towers.ts";

/** File that a tower needs. */
export interface TowerFile {
  readonly path: string;
  /** Description for messages. */
  readonly what: string;
  readonly role: "weights" | "tokenizer";
}

/** Path of the weights of a tower in a model repository that serves images in `modelKind`. */
export function weightsPath(repository: string, tower: ServedTower, modelKind: FileKind): string {
  return `${repository}/${modelPath(tower.spec, towerKind(tower, modelKind))}`;
}

/**
 * Returns the files that a tower loads: its weights and, for texts, its tokenizer.
 *
 * @param repository - Path of the model repository.
 * @param modelKind - Model kind of the image towers.
 */
export function towerFiles(
  tower: ServedTower,
  repository: string,
  modelKind: FileKind,
): readonly TowerFile[] {
  const path = weightsPath(repository, tower, modelKind);
  const tokenizer = tokenizerFile(tower);
  return [
    {
      path,
      what: `the file with the weights${ofModel(tower)}`,
      role: "weights",
    },
    ...(tokenizer === undefined
      ? []
      : [
          {
            path: `${dirname(path)}/${tokenizer}`,
            what: `the tokenizer of ${tower.spec.name}`,
            role: "tokenizer" as const,
          },
        ]),
  ];
}

/** Path of the file that TensorRT serves if it takes the precision from the graph: beside the weights. */
export function tensorrtPath(weights: string): string {
  return `${dirname(weights)}/${tensorrtFile}`;
}

/** ` of dinov2-small`; empty for the model whose objects have no suffix. */
export function ofModel(tower: ServedTower): string {
  const suffix = towerSuffix(tower);
  return suffix === "" ? "" : ` of ${suffix.slice(1)}`;
}

/** Unit of the required disk space, in MiB. */
const diskUnitMiB = 256;

/** Disk space of the weights of a tower, in MiB. */
export function weightsDiskMiB(
  { tower }: ServedTower,
  precision: WeightsPrecision = "fp32",
): number {
  return Math.ceil(weightsMiB(tower, precision) / diskUnitMiB) * diskUnitMiB;
}

/**
 * Precondition that the weights exist.
 *
 * @param path - Path of the weights, for the error message.
 * @param exists - Terraform expression. It must refer to another object, because Terraform rejects a constant condition.
 */
export function weightsCondition(path: string, exists: string, { spec, modality }: ServedTower) {
  const texts = modality === "text" ? " --modality text" : "";
  const model = spec.name === defaultModel.name && texts === "" ? "" : ` ${spec.name}${texts}`;
  const command = trainedWeightsCommand(spec);
  const trained =
    command === undefined
      ? "copy the file there"
      : `'npx clipstack model ${command}${model}' ${effects[command]}`;
  return {
    condition: expression(exists),
    errorMessage: `There are no weights at ${path}: ${trained}, 'npx clipstack model generate${model}' generates random ones.`,
  };
}

/** The same for {@link tensorrtPath}. */
export function tensorrtCondition(path: string, exists: string, { spec, modality }: ServedTower) {
  const texts = modality === "text" ? " --modality text" : "";
  const command = `npx clipstack model convert ${spec.name}${texts} --precision fp16 --keep-graph`;
  return {
    condition: expression(exists),
    errorMessage: `There is no file at ${path}, which TensorRT 11 (Triton ${firstStronglyTyped} and newer) requires for FP16: '${command}' writes it.`,
  };
}

const effects = {
  pull: "downloads them",
  export: "exports them from PyTorch",
  import: "fetches them from PyPI",
} as const;

/** Preconditions that the files of a tower exist in the folder `repository` of the project. */
export function towerFileConditions(
  tower: ServedTower,
  repository: string,
  modelKind: FileKind,
  root: string,
) {
  return towerFiles(tower, repository, modelKind).map(({ path, what, role }) => {
    const exists = `fileexists("${root}/${path}")`;
    return role === "weights"
      ? weightsCondition(path, exists, tower)
      : {
          condition: expression(exists),
          errorMessage: `There is no file at ${path}: copy ${what} there.`,
        };
  });
}
