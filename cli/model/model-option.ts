import { stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { InvalidArgumentError, Option } from "commander";
import { textTowerOf, tokenizerFile } from "../../contract/model-shapes.ts";
import type { ModelSpec, ModelTower } from "../../contract/model-spec.ts";
import { trainedWeightsCommand } from "../../contract/models/trained-weights.ts";
import { UserError } from "../../contract/user-error.ts";
import { displayPath } from "../../model-tools/files/user-errors.ts";
import { ensureGeneratedModel, ensureTinyModel } from "../../model-tools/generate/generate.ts";

/** Hidden option `--model` of commands whose option for model files is `--weights`. */
export function weightsHint(): Option {
  return new Option("--model <model>").hideHelp().argParser((value) => {
    throw new InvalidArgumentError(`${hintOf(value)}.`);
  });
}

const hintOf = (value: string) => `Model files are selected with --weights ${value}`;

/**
 * Name of a model that `--model` accepts.
 *
 * @throws {InvalidArgumentError} if the value is one of `--weights`
 */
export function modelName(value: string): string {
  if (/[./\\]/.test(value) || value === "tiny" || value === "generated") {
    throw new InvalidArgumentError(`It must be the name of a model. ${hintOf(value)}.`);
  }
  return value;
}

/**
 * Path of the ONNX file of a tower that `--weights` selects; `tiny` and `generated` are written if they are missing.
 *
 * @param onPercent - Receives the progress of writing the full-size model.
 */
export async function towerFile(
  { spec, modality }: ModelTower,
  weights: string,
  onPercent: (percent: number) => void,
): Promise<string> {
  if (weights === "tiny") return ensureTinyModel(spec, modality);
  if (weights === "generated") {
    return ensureGeneratedModel(
      spec,
      ({ bytes, total }) => onPercent(Math.floor((100 * bytes) / total)),
      modality,
    );
  }
  const path = resolve(weights);
  const file = await stat(path).catch(() => undefined);
  if (file?.isFile() === true) return path;
  throw new UserError(`--weights must be tiny, generated or a file that exists, got '${weights}'`);
}

/**
 * Returns why a text tower cannot be used, and the remedy; undefined if it can. Its tokenizer may be a file, which cannot be generated.
 *
 * @param folder - Folder of its model file.
 */
export async function tokenizerProblem(
  spec: ModelSpec,
  folder: string,
): Promise<string | undefined> {
  const tokenizer = tokenizerFile(textTowerOf(spec).input);
  if (tokenizer === undefined) return undefined;
  const file = await stat(join(folder, tokenizer)).catch(() => undefined);
  if (file?.isFile() === true) return undefined;
  const command = trainedWeightsCommand(spec);
  const run = command === undefined ? "" : `run 'npx clipstack model ${command} ${spec.name}', or `;
  return `the file of its tokenizer is missing: ${run}copy ${tokenizer} to ${displayPath(folder)}`;
}
