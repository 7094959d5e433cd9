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

/** A config variant that names GPUs which its container does not see. Inside a container they count from 0. */
export function variantGpuFindings(
  gpus: readonly number[],
  variant: string,
  variantGpus: readonly number[],
): readonly Finding[] {
  const needed = variantGpus.length === 0 ? 0 : Math.max(...variantGpus) + 1;
  return gpus.length === needed
    ? []
    : [
        `gpus must list ${needed} of them, as many as the variant '${variant}' uses, got ${gpus.length}: [${gpus.join(", ")}]`,
      ];
}
