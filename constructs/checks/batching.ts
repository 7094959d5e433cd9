import type { Finding } from "./findings.ts";

/** Preferred batch sizes that the batcher could never form. */
export function batchFindings(model: {
  readonly name: string;
  readonly maxBatchSize: number;
  readonly preferredBatchSizes: readonly number[];
}): readonly Finding[] {
  return model.preferredBatchSizes
    .filter((size) => size < 1 || size > model.maxBatchSize)
    .map(
      (size) =>
        `preferredBatchSizes of ${model.name} must be 1 to ${model.maxBatchSize} (maxBatchSize), got ${size}`,
    );
}
