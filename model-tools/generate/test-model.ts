import { mkdir, symlink, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { type OnnxModel, onnxChunks } from "../onnx/writer.ts";
import { ensureTinyModel, modelFile } from "./generate.ts";

const paths = new Map<string, Promise<string>>();

/** Path of the tiny image tower of a model for tests, generated once. Same tensors as the full-size model. */
export function tinyModel(spec: ModelSpec = defaultModel): Promise<string> {
  let path = paths.get(spec.name);
  path ??= ensureTinyModel(spec);
  paths.set(spec.name, path);
  return path;
}

/** Model repository with the tiny image tower of a model, for the setting MODEL_REPOSITORY. */
export async function tinyRepository(spec: ModelSpec = defaultModel): Promise<string> {
  const model = await tinyModel(spec);
  // named after the checksum of the model, so that the link never changes
  const repository = model.replace(/\.onnx$/, "-repository");
  const path = modelFile(spec, "fp32", repository);
  await mkdir(dirname(path), { recursive: true });
  await symlink(model, path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  return repository;
}

export async function writeModel(file: string, model: OnnxModel): Promise<void> {
  await writeFile(
    file,
    Buffer.concat(Array.from(onnxChunks(model), (chunk) => Buffer.from(chunk))),
  );
}
