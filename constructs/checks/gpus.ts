import {
  type ModelConfig,
  type ModelVariant,
  modelConfigs,
  modelVariants,
} from "../../inference-image/src/contract/model-config.ts";
import type { ModelName } from "../../inference-image/src/contract/model-signature.ts";
import type { Finding } from "./findings.ts";

/** GPU indices that the host does not have, or that are listed twice. */
export function gpuIndexFindings(gpus: readonly number[], hostCount: number): readonly Finding[] {
  if (gpus.length === 0) return ["gpus must list at least one GPU, got []"];
  const absent = gpus
    .filter((index) => index < 0 || index >= hostCount)
    .map(
      (index) => `gpus must be 0 to ${hostCount - 1} (host.count is ${hostCount}), got ${index}`,
    );
  const repeated = gpus
    .filter((index, position) => gpus.indexOf(index) !== position)
    .map((index) => `gpus must not repeat a GPU, got ${index} twice`);
  return [...absent, ...repeated];
}

/** GPUs that a configuration uses. Inside a container they count from 0, whichever they are on the host. */
function gpusUsed({ instance_group: groups = [] }: ModelConfig): number {
  return Math.max(0, ...groups.flatMap(({ gpus = [] }) => gpus.map((index) => index + 1)));
}

/** The named configuration of a model for `gpus`; `single-gpu` where none fits, which is a finding. */
export function variantFor(model: ModelName, gpus: readonly number[]): ModelVariant {
  const fits = (variant: ModelVariant) => gpusUsed(modelConfigs[model][variant]) === gpus.length;
  return modelVariants.find(fits) ?? "single-gpu";
}

/**
 * A number of GPUs that no named configuration of the model is for. Says nothing while the indices themselves are wrong.
 */
export function variantGpuFindings(
  gpus: readonly number[],
  hostCount: number,
  model: ModelName,
): readonly Finding[] {
  const counts = modelVariants.map((variant) => gpusUsed(modelConfigs[model][variant]));
  if (counts.includes(gpus.length) || gpuIndexFindings(gpus, hostCount).length > 0) return [];
  const known = counts.filter((count) => count > 0).join(" or ");
  return [
    `gpus must list ${known} of them, as the configurations of ${model} do, got ${gpus.length}: ${gpus.join(", ")}`,
  ];
}
