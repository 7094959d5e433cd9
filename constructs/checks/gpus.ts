import { instanceGroups, type ModelVariant, modelVariants } from "../../contract/model-config.ts";
import { type Finding, findingIf } from "./findings.ts";

/** GPU of a host: its index in `nvidia-smi`, or its UUID, which stays the same when cards are moved. */
export type GpuId = number | string;

/** Rejects GPU indices that the host does not have, repeated GPUs and an empty list. */
export function gpuIndexFindings(gpus: readonly GpuId[], hostCount: number): readonly Finding[] {
  if (gpus.length === 0) return [{ path: "gpus", must: "list at least one GPU", got: "[]" }];
  const outOfRange = gpus
    .filter((gpu) => typeof gpu === "number" && (gpu < 0 || gpu >= hostCount))
    .map((gpu) => ({
      path: "gpus",
      must: `be 0 to ${hostCount - 1} (host.count is ${hostCount})`,
      got: String(gpu),
    }));
  const repeated = gpus
    .filter((gpu, position) => gpus.indexOf(gpu) !== position)
    .map((gpu) => ({ path: "gpus", must: "not repeat a GPU", got: `${gpu} twice` }));
  return [...outOfRange, ...repeated];
}

/** Rejects a mix of indices and UUIDs on one host, which may name the same GPU twice, and more UUIDs than the host has GPUs. */
export function gpuNamingFindings(gpus: readonly GpuId[], hostCount: number): readonly Finding[] {
  const uuids = gpus.filter((gpu) => typeof gpu === "string");
  const index = gpus.find((gpu) => typeof gpu === "number");
  if (uuids.length > 0 && index !== undefined) {
    const must = "be named all by index or all by UUID";
    return [{ path: "gpus", must, got: `${index} and ${uuids[0]}` }];
  }
  return findingIf(
    uuids.length > hostCount,
    "gpus",
    `be at most ${hostCount} UUIDs (host.count is ${hostCount})`,
    `${uuids.length}: ${uuids.join(", ")}`,
  );
}

/** Number of GPUs that a configuration variant uses. Inside a container, indices start at 0 for any GPUs of the host. */
function gpusUsed(variant: ModelVariant): number {
  const used = instanceGroups[variant].flatMap(({ gpus = [] }) => gpus.map((index) => index + 1));
  return Math.max(0, ...used);
}

/** Returns the configuration variant for `gpus`, or `single-gpu` if there is none, which `variantGpuFindings` rejects. */
export function variantFor(gpus: readonly GpuId[]): ModelVariant {
  return modelVariants.find((variant) => gpusUsed(variant) === gpus.length) ?? "single-gpu";
}

/** GPU counts of the configuration variants, without the one for the CPU. */
export function variantGpuCounts(): readonly number[] {
  return modelVariants.map(gpusUsed).filter((count) => count > 0);
}

/** Rejects a number of GPUs without a model configuration. Ignores lists that `gpuIndexFindings` rejects. */
export function variantGpuFindings(
  gpus: readonly GpuId[],
  hostCount: number,
  model: string,
): readonly Finding[] {
  const counts = variantGpuCounts();
  if (gpuIndexFindings(gpus, hostCount).length > 0) return [];
  return findingIf(
    ![0, ...counts].includes(gpus.length),
    "gpus",
    `list ${counts.join(" or ")} GPUs, as the model configurations of ${model} require`,
    `${gpus.length}: ${gpus.join(", ")}`,
  );
}
