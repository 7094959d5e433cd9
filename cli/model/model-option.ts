import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { UserError } from "../../contract/user-error.ts";
import { ensureGeneratedModel, ensureTinyModel } from "../../model-tools/generate.ts";

/**
 * Path of the ONNX file that `--model` names; `tiny` and `generated` are written if they are missing.
 *
 * @param onPercent - Receives the progress of writing the full-size model.
 * @throws {UserError} if there is no such file.
 */
export async function modelFile(
  model: string,
  onPercent: (percent: number) => void,
): Promise<string> {
  if (model === "tiny") return ensureTinyModel();
  if (model === "generated") {
    return ensureGeneratedModel(({ bytes, total }) => onPercent(Math.floor((100 * bytes) / total)));
  }
  const path = resolve(model);
  const file = await stat(path).catch(() => undefined);
  if (file?.isFile() === true) return path;
  throw new UserError(`--model must be tiny, generated or a file that exists, got '${model}'`);
}
