import { realpath } from "node:fs/promises";
import type { ModelPrecision } from "../../contract/server/server-env.ts";
import { type ModelInfo, modelInfo, readSidecar, sidecarPath } from "./model-info.ts";
import { sizeOf } from "./publish-file.ts";

/** Path of the file of a precision: `model.int8.onnx` beside `model.onnx`. */
export function preparedPath(modelPath: string, precision: ModelPrecision): string {
  return precision === "fp32" ? modelPath : `${modelPath.replace(/\.onnx$/, "")}.${precision}.onnx`;
}

function prepareCommand(modelPath: string, precision: ModelPrecision): string {
  const command = precision === "fp32-optimised" ? "optimise" : `convert --precision ${precision}`;
  return `npx clipstack model ${command} --weights ${modelPath}`;
}

export interface SelectedModel {
  /** File to load. */
  readonly path: string;
  /** Its manifest; `undefined` if a file of precision `fp32` has none. */
  readonly manifest?: ModelInfo;
}

/**
 * Selects the file of `MODEL_PRECISION`. A prepared file must be complete and derived from the model.
 *
 * @param modelPath - Model of precision `fp32`; a link is followed.
 * @throws {Error} with one line: the file, the rule, and the command that writes the file
 */
export async function selectModel(
  modelPath: string,
  precision: ModelPrecision,
): Promise<SelectedModel> {
  const model = await realpath(modelPath).catch(() => modelPath);
  if (precision === "fp32") return { path: modelPath, manifest: await readSidecar(model) };
  const path = preparedPath(model, precision);
  const fail = (problem: string) =>
    new Error(`${path}: ${problem}; write it with '${prepareCommand(model, precision)}'`);
  const bytes = await sizeOf(path);
  if (bytes === undefined) throw fail(`must exist for MODEL_PRECISION ${precision}`);
  const manifest = await readSidecar(path);
  if (manifest?.derivedFrom === undefined) {
    throw fail(`must have a manifest ${sidecarPath(path)} that names its source`);
  }
  if (manifest.bytes !== bytes) throw fail(`must have ${manifest.bytes} bytes, got ${bytes}`);
  const { sha256 } = await modelInfo(modelPath);
  if (manifest.derivedFrom !== sha256) {
    throw fail(`must be derived from ${model} (sha256 ${sha256}), got ${manifest.derivedFrom}`);
  }
  return { path, manifest };
}
