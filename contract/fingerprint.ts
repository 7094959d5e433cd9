import { createHash } from "node:crypto";
import { type ModelConfig, tensorrtFile } from "./model-config.ts";
import type { Modality, ModelSpec } from "./model-spec.ts";

/** Fingerprint of an embedding: identifies the weights, the preprocessing and the precision that made it. */

/** Precision of a tower. The precision `fp32-optimised` of a file is `fp32`: only its order of additions differs. */
export const fingerprintPrecisions = ["fp32", "fp16", "int8"] as const;
export type FingerprintPrecision = (typeof fingerprintPrecisions)[number];

export interface WeightsIdentity {
  /** SHA-256 of the model file, or of the FP32 file from which it was derived. For a model with external data, the SHA-256 in its manifest. */
  readonly sha256: string;
  readonly precision: FingerprintPrecision;
}

/** Facts of a tower's input that determine its embeddings; names and layouts of tensors do not. */
function preprocessingOf(
  { name, towers }: Pick<ModelSpec, "name" | "towers">,
  modality: Modality,
): object {
  const { image, text } = towers;
  if (modality === "image" && image !== undefined) {
    const { tensor: _, layout: __, rgbConversion = "after-resize", ...facts } = image.input;
    return { ...facts, rgbConversion };
  }
  if (modality === "text" && text !== undefined) {
    const { tensor: _, idType: __, tokenizer, ...facts } = text.input;
    const { kind, file, sha256 } = tokenizer;
    return { ...facts, tokenizer: { kind, ...(sha256 === undefined ? { file } : { sha256 }) } };
  }
  throw new Error(`${name}: has no ${modality} tower`);
}

/** JSON without spaces, with the keys of all objects in alphabetical order (RFC 8785 for the values used here). */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, item) =>
    typeof item === "object" && item !== null && !Array.isArray(item)
      ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
      : item,
  );
}

export const sha256 = (content: string | Uint8Array) =>
  createHash("sha256").update(content).digest("hex");

/** SHA-256 of the canonical JSON of a tower's preprocessing. */
export function preprocessingSha256(
  spec: Pick<ModelSpec, "name" | "towers">,
  modality: Modality,
): string {
  return sha256(canonicalJson(preprocessingOf(spec, modality)));
}

/** Canonical JSON whose SHA-256 is the fingerprint. `weights` may contain Terraform expressions. */
export function fingerprintJson(
  preprocessing: string,
  { sha256: weights, precision }: WeightsIdentity,
): string {
  return canonicalJson({ precision, preprocessing, weights });
}

/**
 * Returns the fingerprint of a tower: 64 hexadecimal digits.
 *
 * @param preprocessing - {@link preprocessingSha256}
 */
export function fingerprintOf(preprocessing: string, weights: WeightsIdentity): string {
  return sha256(fingerprintJson(preprocessing, weights));
}

/** Decoding of images: `dali` in Triton, otherwise a value of PREPROCESSING of the embed server. */
export type ImageDecoding = "exact" | "fast" | "dali";

/** Returns the fingerprint of images that are decoded in a way that changes their pixels. */
export function decodedFingerprint(fingerprint: string, decoding: ImageDecoding): string {
  return decoding === "exact" ? fingerprint : sha256(canonicalJson({ decoding, fingerprint }));
}

/** Parameters of `config.pbtxt`, present once the weights are known. */
export const fingerprintParameters = {
  fingerprint: "fingerprint",
  /** {@link preprocessingSha256}, from which a deployment of other weights computes their fingerprint. */
  preprocessing: "preprocessing_sha256",
  /** Version of the model that the fingerprint is about: another version has other weights. */
  version: "fingerprint_version",
} as const;

/** Returns the parameters of `config.pbtxt` for the weights of a version. */
export function parametersOf(
  preprocessing: string,
  fingerprint: string,
  version = "1",
): NonNullable<ModelConfig["parameters"]> {
  return {
    [fingerprintParameters.fingerprint]: { string_value: fingerprint },
    [fingerprintParameters.version]: { string_value: version },
    [fingerprintParameters.preprocessing]: { string_value: preprocessing },
  };
}

/**
 * Returns the fingerprint in a configuration; undefined if it has none, or not for the latest of the served versions.
 */
export function configuredFingerprint(
  { parameters }: Pick<ModelConfig, "parameters">,
  versions: readonly string[],
): string | undefined {
  const value = (name: keyof typeof fingerprintParameters) =>
    parameters?.[fingerprintParameters[name]]?.string_value;
  const latest = Math.max(...versions.map(Number));
  const fingerprint = value("fingerprint") ?? "";
  return Number(value("version")) === latest && /^[0-9a-f]{64}$/.test(fingerprint)
    ? fingerprint
    : undefined;
}

/** Returns whether TensorRT computes in FP16: by its precision flag, or from release 11 on by a graph in half precision. */
export function computesInFp16({
  default_model_filename: file,
  optimization,
}: Pick<ModelConfig, "default_model_filename" | "optimization">): boolean {
  const accelerators = optimization?.execution_accelerators?.gpu_execution_accelerator ?? [];
  return (
    file === tensorrtFile ||
    accelerators.some(({ parameters }) => parameters?.precision_mode === "FP16")
  );
}
