import { existsSync } from "node:fs";
import { cp, mkdir, symlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { type ModelSignature, models, openclipVitB32U8 } from "../contract/model-signature.ts";
import { repositoryModel } from "./generate.ts";
import { ensureOptimised } from "./optimise.ts";

/** Model repository of this checkout, with `<model>/1/model.onnx`. */
export const checkoutRepository = resolve(dirname(repositoryModel), "..", "..");

/**
 * Writes a copy of the checkout's model repository with another model file.
 *
 * @param modelFile - ONNX file of an image tower with the input of `openclip_vit_b32`.
 * @param folder - Output folder.
 * @param u8File - Path of the optimised file with pixel input, written if it is missing.
 */
export async function copyModelRepository(
  modelFile: string,
  folder: string,
  u8File = join(folder, openclipVitB32U8.name, "1", "model.onnx"),
): Promise<void> {
  for (const { name, platform } of models as readonly ModelSignature[]) {
    const version = join(folder, name, "1");
    await mkdir(version, { recursive: true });
    for (const part of ["config.pbtxt", "configs"]) {
      const from = join(checkoutRepository, name, part);
      if (existsSync(from)) await cp(from, join(folder, name, part), { recursive: true });
    }
    const target = join(version, "model.onnx");
    if (platform === "python") {
      await cp(join(checkoutRepository, name, "1", "model.py"), join(version, "model.py"));
    } else if (name === openclipVitB32U8.name) {
      await ensureOptimised(modelFile, u8File);
      if (u8File !== target) await symlink(u8File, target);
    } else if (platform === "onnxruntime_onnx") {
      await symlink(modelFile, target);
    }
  }
}
