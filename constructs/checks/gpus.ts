import {
  type ModelConfig,
  type ModelVariant,
  modelConfigs,
  modelVariants,
} from "../../contract/model-config.ts";
import type { ModelName } from "../../contract/model-signature.ts";
import type { Finding } from "./findings.ts";

/** A GPU of a host: its index, as `nvidia-smi` counts, or its UUID, which stays the same when cards are moved. */
export type GpuId = number | string;

/** GPUs that the host does not have, or that are listed twice. */
export function gpuIndexFindings(gpus: readonly GpuId[], hostCount: number): readonly Finding[] {
  if (gpus.length === 0) return [{ path: "gpus", must: "list at least one GPU", got: "[]" }];
  const absent = gpus
    .filter((gpu) => typeof gpu === "number" && (gpu < 0 || gpu >= hostCount))
    .map((gpu) => ({
      path: "gpus",
      must: `be 0 to ${hostCount - 1} (host.count is ${hostCount})`,
      got: String(gpu),
    }));
  const repeated = gpus
    .filter((gpu, position) => gpus.indexOf(gpu) !== position)
    .map((gpu) => ({ path: "gpus", must: "not repeat a GPU", got: `${gpu} twice` }));
  return [...absent, ...repeated];
}

/**
 * GPUs of one host that are named in both ways, so that nobody can say which are the same; or more UUIDs than the host has
 * GPUs.
 */
export function gpuNamingFindings(gpus: readonly GpuId[], hostCount: number): readonly Finding[] {
  const uuids = gpus.filter((gpu) => typeof gpu === "string");
  const index = gpus.find((gpu) => typeof gpu === "number");
  if (uuids.length > 0 && index !== undefined) {
    return [
      {
        path: "gpus",
        must: "be named all by index or all by UUID",
        got: `${index} and ${uuids[0]}`,
      },
    ];
  }
  if (uuids.length <= hostCount) return [];
  return [
    {
      path: "gpus",
      must: `be at most ${hostCount} UUIDs (host.count is ${hostCount})`,
      got: `${uuids.length}: ${uuids.join(", ")}`,
    },
  ];
}

/** GPUs that a configuration uses. Inside a container they count from 0, whichever they are on the host. */
function gpusUsed({ instance_group: groups = [] }: ModelConfig): number {
  return Math.max(0, ...groups.flatMap(({ gpus = [] }) => gpus.map((index) => index + 1)));
}

/** The named configuration of a model for `gpus`; `single-gpu` where none fits, which is a finding. */
export function variantFor(model: ModelName, gpus: readonly GpuId[]): ModelVariant {
  const fits = (variant: ModelVariant) => gpusUsed(modelConfigs[model][variant]) === gpus.length;
  return modelVariants.find(fits) ?? "single-gpu";
}

/** Numbers of GPUs that the named configurations of a model are for, the CPU's 0 left out. */
export function variantGpuCounts(model: ModelName): readonly number[] {
  return modelVariants
    .map((variant) => gpusUsed(modelConfigs[model][variant]))
    .filter((count) => count > 0);
}

/**
 * A number of GPUs that no named configuration of the model is for. Says nothing while the indices themselves are wrong.
 */
export function variantGpuFindings(
  gpus: readonly GpuId[],
  hostCount: number,
  model: ModelName,
): readonly Finding[] {
  const counts = variantGpuCounts(model);
  if ([0, ...counts].includes(gpus.length)) return [];
  if (gpuIndexFindings(gpus, hostCount).length > 0) return [];
  const known = counts.join(" or ");
  return [
    {
      path: "gpus",
      must: `list ${known} of them, as the configurations of ${model} do`,
      got: `${gpus.length}: ${gpus.join(", ")}`,
    },
  ];
}
