import type { ModelConfig } from "../../inference-image/src/contract/model-config.ts";
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

/**
 * A configuration that uses more or fewer GPUs than its container sees. Inside a container they count from 0, whichever
 * they are on the host. Says nothing while the indices themselves are wrong.
 */
export function variantGpuFindings(
  gpus: readonly number[],
  hostCount: number,
  variant: string,
  config: Pick<ModelConfig, "instance_group">,
): readonly Finding[] {
  if (gpus.length > 0 && gpuIndexFindings(gpus, hostCount).length > 0) return [];
  const used = (config.instance_group ?? []).flatMap((group) => group.gpus ?? []);
  const needed = used.length === 0 ? 0 : Math.max(...used) + 1;
  return gpus.length === needed
    ? []
    : [
        `gpus must list ${needed}, as many as the model configuration '${variant}' uses, got ${gpus.length}: ${gpus.join(", ")}`,
      ];
}
