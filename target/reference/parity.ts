import type { PayloadFormat } from "../../contract/bench-endpoint.ts";
import type { EndpointName } from "../../contract/environment.ts";
import { formatFraction } from "../../report/document/number-format.ts";
import { cosine, relativeDifference } from "../stats/statistics.ts";
import type { TargetKind } from "../subject/subject.ts";
import type { ReferenceImage } from "./reference.ts";

/** Two embeddings of an image agree if both limits hold. On other machines, {@link differenceLimit} applies to the difference. */
export const parityLimits = { cosineAtLeast: 0.999, relativeDifferenceAtMost: 0.001 } as const;

/**
 * Limit of the relative difference on another machine, whose GPU multiplies in TensorFloat-32 by ONNX Runtime's default: 0.14 % measured on
 * an H100 (lab/gpu/README.md), 0.0003 % without it.
 */
const tensorFloat32Limit = 0.005;

/**
 * Returns whether only directions can be compared. TensorRT engines and PyTorch's autocast round to FP16, which exceeds the limit of the
 * relative difference but preserves the direction. Local simulations compute FP32.
 */
function roundsToHalf(target: TargetKind, endpoint: EndpointName): boolean {
  return target !== "simulation" && /^(trt|pytorch)-/.test(endpoint);
}

/**
 * Returns the limit of the relative difference; undefined if only directions are compared.
 *
 * @param directionOnly - Another reason to compare directions only, such as {@link decodesWithDali}.
 */
export function differenceLimit(
  target: TargetKind,
  endpoint: EndpointName,
  directionOnly = false,
): number | undefined {
  if (directionOnly || roundsToHalf(target, endpoint)) return undefined;
  return target === "simulation" ? parityLimits.relativeDifferenceAtMost : tensorFloat32Limit;
}

/**
 * Returns whether only directions can be compared because DALI decodes the images, whose pixels differ by a few levels. Local simulations
 * decode exactly in place of DALI.
 */
export function decodesWithDali(
  target: TargetKind,
  payload: PayloadFormat,
  jpegKind: string | undefined,
): boolean {
  return target !== "simulation" && payload === "jpeg" && jpegKind !== undefined;
}

/** Agreement of one embedding with the reference. */
export interface EmbeddingAgreement {
  readonly image: string;
  readonly cosine: number;
  readonly relativeDifference: number;
}

export function compareWith(
  { name, embedding }: Pick<ReferenceImage, "name" | "embedding">,
  vector: Float32Array | undefined,
  image = name,
): EmbeddingAgreement {
  if (vector === undefined) throw new Error(`${image}: no embedding`);
  if (vector.length !== embedding.length) {
    throw new Error(`${image}: must have ${embedding.length} values, got ${vector.length}`);
  }
  return {
    image,
    cosine: cosine(vector, embedding),
    relativeDifference: relativeDifference(vector, embedding),
  };
}

/**
 * Judges embeddings by their cosine and by a limit of their relative difference.
 *
 * @param limit - See {@link differenceLimit}.
 */
export function judgeParity(compared: readonly EmbeddingAgreement[], limit: number | undefined) {
  const { cosineAtLeast } = parityLimits;
  const minCosine = Math.min(...compared.map(({ cosine }) => cosine));
  const maxRelativeDifference = Math.max(...compared.map((result) => result.relativeDifference));
  const wrong = compared.filter(
    (result) =>
      !(result.cosine >= cosineAtLeast) ||
      !(limit === undefined || result.relativeDifference <= limit),
  );
  const names = [...new Set(wrong.map(({ image }) => image))].join(", ");
  const numbers = `cosine ${minCosine.toFixed(6)}, relative difference ${formatFraction(maxRelativeDifference)}`;
  const limits = `must be ≥ ${cosineAtLeast}${limit === undefined ? "" : ` and ≤ ${formatFraction(limit)}`}`;
  return {
    minCosine,
    maxRelativeDifference,
    passed: wrong.length === 0,
    message:
      wrong.length === 0
        ? `${compared.length} embeddings: ${numbers}`
        : `${names} differ from the local reference: ${numbers}; ${limits}`,
  };
}
