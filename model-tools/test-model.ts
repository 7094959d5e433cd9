import { writeFile } from "node:fs/promises";
import { ensureTinyModel } from "./generate.ts";
import { type OnnxModel, onnxChunks } from "./onnx-writer.ts";

let path: Promise<string> | undefined;

/** Path of the tiny model for tests, generated once. Same signature as the full-size model. */
export function tinyModel(): Promise<string> {
  path ??= ensureTinyModel();
  return path;
}

export async function writeModel(file: string, model: OnnxModel): Promise<void> {
  await writeFile(
    file,
    Buffer.concat(Array.from(onnxChunks(model), (chunk) => Buffer.from(chunk))),
  );
}
