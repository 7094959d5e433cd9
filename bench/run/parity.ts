import type { EndpointName } from "../../contract/environment.ts";
import type { PayloadFormat } from "../record/bench-endpoint.ts";
import type { VerifyRecord } from "../record/record.ts";
import { formatFraction } from "../report/number-format.ts";
import { cosine, relativeDifference } from "../stats/statistics.ts";
import type { ReferenceImage } from "./reference.ts";

/** Two embeddings of an image agree if both limits hold. */
export const parityLimits = { cosineAtLeast: 0.999, relativeDifferenceAtMost: 0.001 } as const;

/** Location where embeddings are computed. */
export type VerifyTarget = VerifyRecord["subject"]["target"];

/**
 * Returns whether only directions can be compared. TensorRT engines and PyTorch's autocast round to FP16, which exceeds the limit of the
 * relative difference but preserves the direction. Local simulations compute FP32.
 */
export function roundsToHalf(target: VerifyTarget | "addresses", endpoint: EndpointName): boolean {
  return target !== "simulation" && /^(trt|pytorch)-/.test(endpoint);
}

/**
 * Returns whether only directions can be compared because DALI decodes the images, whose pixels differ by a few levels. Local simulations
 * decode exactly in place of DALI.
 */
export function decodesWithDali(
  target: VerifyTarget | "addresses",
  payload: PayloadFormat,
  jpegVariant: string | undefined,
): boolean {
  return target !== "simulation" && payload === "jpeg" && jpegVariant !== undefined;
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
  return {
    image,
    cosine: cosine(vector, embedding),
    relativeDifference: relativeDifference(vector, embedding),
  };
}

/**
 * Judges embeddings by {@link parityLimits}.
 *
 * @param directionOnly - Ignores the relative difference; see {@link roundsToHalf}.
 */
export function judgeParity(compared: readonly EmbeddingAgreement[], directionOnly: boolean) {
  const { cosineAtLeast, relativeDifferenceAtMost } = parityLimits;
  const minCosine = Math.min(...compared.map(({ cosine }) => cosine));
  const maxRelativeDifference = Math.max(...compared.map((result) => result.relativeDifference));
  const wrong = compared.filter(
    (result) =>
      !(result.cosine >= cosineAtLeast) ||
      !(directionOnly || result.relativeDifference <= relativeDifferenceAtMost),
  );
  const names = [...new Set(wrong.map(({ image }) => image))].join(", ");
  const numbers = `cosine ${minCosine.toFixed(6)}, relative difference ${formatFraction(maxRelativeDifference)}`;
  const limits = `must be ≥ ${cosineAtLeast}${directionOnly ? "" : ` and ≤ ${formatFraction(relativeDifferenceAtMost)}`}`;
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
