import { join } from "node:path";
import { tensorrtFile } from "../../contract/model-config.ts";
import { requireHalfProducts } from "../../model-tools/check/half-products.ts";
import { modelSha256, readSidecar, sha256Of } from "../../model-tools/files/model-info.ts";
import { sizeOf } from "../../model-tools/files/publish-file.ts";
import { readArguments, UsageError } from "./role-arguments.ts";

export interface CheckWeightsOptions {
  /** Folder of version 1 of the model, which contains the file. */
  readonly folder: string;
  /**
   * Name of the file.
   *
   * @default "model.onnx"
   */
  readonly file?: string;
  /** Required SHA-256 of the file, lower-case hexadecimal; of a model with external data as {@link modelSha256}. */
  readonly sha256: string;
}

/** Reads the arguments of `check-weights …`. */
export function readCheckWeightsArguments(args: readonly string[]): CheckWeightsOptions {
  return requireSha256(
    "check-weights",
    readArguments("check-weights", args, {
      required: ["folder", "sha256"],
      optional: ["file"],
    }),
  );
}

export function requireSha256(role: string, options: CheckWeightsOptions): CheckWeightsOptions {
  const { folder, file, sha256 } = options;
  if (file !== undefined && !/^[\w-][\w.-]*$/.test(file)) {
    throw new UsageError(`${role}: --file must be the name of a file, got '${file}'`);
  }
  if (!/^[0-9a-f]{64}$/.test(sha256)) {
    throw new UsageError(
      `${role}: --sha256 must be 64 digits, lower-case hexadecimal, got '${sha256}'`,
    );
  }
  return { folder, sha256, ...(file !== undefined && { file }) };
}

export function weightsPath({
  folder,
  file = "model.onnx",
}: Pick<CheckWeightsOptions, "folder" | "file">): string {
  return join(folder, file);
}

/**
 * Checks that a file has the given checksum, and that the one for TensorRT is in half precision. Nothing is written.
 *
 * @returns Description of the file, in one line.
 * @throws {Error} one line, naming the file, the rule and the value.
 */
export async function checkWeights(options: CheckWeightsOptions): Promise<string> {
  const { sha256 } = options;
  const file = weightsPath(options);
  const bytes = await sizeOf(file);
  if (bytes === undefined) throw new Error(`${file} does not exist`);
  const got = await (file.endsWith(".onnx") ? modelSha256 : sha256Of)(file);
  if (got !== sha256) throw new Error(`${file}: sha256 must be ${sha256}, got ${got}`);
  if (options.file === tensorrtFile) requireHalfProducts(file);
  const manifest = await readSidecar(file);
  const weights = manifest?.sha256 === sha256 ? manifest.weights : "unknown";
  const size = `${Math.round(bytes / 1e6)} MB`;
  return `${file} is sha256 ${sha256.slice(0, 12)}, ${size}, weights ${weights}`;
}
