import { embeddingDims } from "../contract/model-signature.ts";
import type { Tensor } from "../contract/tensor.ts";
import { normaliseInPlace } from "./normalise.ts";
import { EngineError } from "./types.ts";

/**
 * Take the model's output apart, each vector scaled to unit L2 norm.
 *
 * @throws {EngineError} `failed` when it is not `[count, 512]` FP32
 */
export function embeddingsOf(output: Tensor | undefined, count: number): readonly Float32Array[] {
  if (output?.dataType !== "FP32" || output.data.length !== count * embeddingDims) {
    const got = output === undefined ? "none" : `${output.dataType} [${output.shape.join(", ")}]`;
    throw new EngineError(
      "failed",
      `the output must be FP32 [${count}, ${embeddingDims}], got ${got}`,
    );
  }
  const { data } = output;
  return Array.from({ length: count }, (_, index) =>
    normaliseInPlace(data.slice(index * embeddingDims, (index + 1) * embeddingDims)),
  );
}
