import { readdir, readFile, rename, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { readModelConfig } from "../../client/triton/model-config.ts";
import {
  computesInFp16,
  fingerprintOf,
  fingerprintParameters,
  parametersOf,
  type WeightsIdentity,
} from "../../contract/fingerprint.ts";
import type { ModelConfig } from "../../contract/model-config.ts";
import { printModelConfig } from "../../contract/print-model-config.ts";
import { modelInfo } from "../files/model-info.ts";
import { ownSuffix, sizeOf } from "../files/publish-file.ts";

/** Returns the identity of the weights of a model file: from its manifest, or its checksum. */
export async function weightsIdentity(file: string): Promise<WeightsIdentity> {
  const { sha256, precision, derivedFrom } = await modelInfo(file);
  if (precision === undefined || derivedFrom === undefined) return { sha256, precision: "fp32" };
  return {
    sha256: derivedFrom,
    precision: precision === "fp32-optimised" ? "fp32" : precision,
  };
}

/**
 * Returns a configuration with the fingerprint of a model file.
 *
 * @param preprocessing - `preprocessingSha256` of the tower. @default - that of the previous fingerprint; without one, the text is unchanged
 */
export async function withFingerprint(
  text: string,
  name: string,
  { file, version, preprocessing }: FingerprintedFile,
): Promise<string> {
  const config = readModelConfig(text, name);
  const parameters = await parametersOfFile(config, { file, version, preprocessing });
  return parameters === undefined ? text : withParameters(text, parameters);
}

/** Returns the parameters of a configuration for a model file; undefined without a previous fingerprint or `preprocessing`. */
export async function parametersOfFile(
  config: FingerprintedConfig,
  { file, version, preprocessing }: FingerprintedFile,
): Promise<ModelConfig["parameters"]> {
  const facts =
    preprocessing ?? config.parameters?.[fingerprintParameters.preprocessing]?.string_value;
  if (facts === undefined) return undefined;
  const identity = await weightsIdentity(file);
  const precision = computesInFp16(config) ? "fp16" : identity.precision;
  return parametersOf(facts, fingerprintOf(facts, { ...identity, precision }), version);
}

type FingerprintedConfig = Pick<
  ModelConfig,
  "parameters" | "default_model_filename" | "optimization"
>;

export interface FingerprintedFile {
  /** ONNX file. */
  readonly file: string;
  /** Version of the model in Triton. */
  readonly version: string;
  readonly preprocessing?: string | undefined;
}

/**
 * Writes the fingerprint of a version into the configurations of a model: `config.pbtxt` and the files below `configs`.
 *
 * @param folder - Folder of the model in a repository.
 * @param preprocessing - `preprocessingSha256` of the tower. @default - that of the previous fingerprint; without one, nothing is written
 */
export async function writeFingerprint(
  folder: string,
  version: string,
  preprocessing?: string,
): Promise<void> {
  const named = await readdir(join(folder, "configs"), { recursive: true }).catch(() => []);
  const files = [
    join(folder, "config.pbtxt"),
    ...named.filter((name) => name.endsWith(".pbtxt")).map((name) => join(folder, "configs", name)),
  ];
  for (const file of files) {
    const text = await readFile(file, "utf8").catch(() => undefined);
    if (text === undefined) continue;
    const changed = await withFingerprint(text, basename(file), {
      file: await weightsFile(join(folder, version), text, basename(file)),
      version,
      preprocessing,
    });
    if (changed === text) continue;
    const part = `${file}.${ownSuffix()}.part`;
    await writeFile(part, changed);
    await rename(part, file);
  }
}

/** Returns the file that a configuration names; the FP32 file if the folder does not have it. */
async function weightsFile(folder: string, text: string, name: string): Promise<string> {
  const named = join(folder, readModelConfig(text, name).default_model_filename || "model.onnx");
  return (await sizeOf(named)) === undefined ? join(folder, "model.onnx") : named;
}

/** Replaces parameters that {@link printModelConfig} has printed, or appends them. */
function withParameters(text: string, parameters: ReturnType<typeof parametersOf>): string {
  const names = Object.keys(parameters).join("|");
  const printed = new RegExp(
    `^parameters \\{\\n  key: "(${names})"\\n  value \\{\\n    string_value: "[^"\\n]*"\\n  \\}\\n\\}\\n`,
    "gm",
  );
  return text.replace(printed, "") + printModelConfig({ parameters } as ModelConfig);
}
