import type { ModelConfig } from "../../inference-image/src/contract/model-config.ts";
import type { Finding } from "./findings.ts";

/** Preferred batch sizes that the batcher could never form; Triton refuses to start on one. */
export function batchFindings(
  config: Pick<ModelConfig, "name" | "max_batch_size" | "dynamic_batching">,
): readonly Finding[] {
  const { name, max_batch_size: most } = config;
  return (config.dynamic_batching?.preferred_batch_size ?? [])
    .filter((size) => size < 1 || size > most)
    .map(
      (size) => `preferredBatchSizes of ${name} must be 1 to ${most} (maxBatchSize), got ${size}`,
    );
}
