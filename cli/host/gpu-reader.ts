import { type GpuReading, gpuUseArgs, parseGpuUse } from "../../bench/run/gpu-use.ts";
import type { Environment } from "../../contract/environment.ts";
import { Docker, DockerError } from "./docker-command.ts";
import { isUnknown, runnerFor } from "./host-facts.ts";

/**
 * Reads the GPUs of a deployed environment with `nvidia-smi`: in one of its containers, over the Docker endpoint that it was
 * deployed through, or on the host itself. Returns undefined without GPUs or on a cluster.
 *
 * @param containers - Container names; the first with `nvidia-smi` is used from then on.
 */
export function gpuReader(
  { accelerator, where, namespace }: Environment,
  containers: readonly string[],
  signal: AbortSignal,
): (() => Promise<readonly GpuReading[]>) | undefined {
  if (accelerator === "cpu" || namespace !== undefined) return undefined;
  const docker = new Docker(where, signal);
  const onHost = runnerFor(where);
  const sources = [
    ...containers.map((name) => async () => {
      const { exitCode, stdout } = await docker.run("exec", name, "nvidia-smi", ...gpuUseArgs);
      return exitCode === 0 ? parseGpuUse(stdout) : [];
    }),
    async () => {
      const result = await onHost("nvidia-smi", gpuUseArgs);
      return isUnknown(result) || result.exitCode !== 0 ? [] : parseGpuUse(result.stdout);
    },
  ];
  let chosen: (() => Promise<readonly GpuReading[]>) | undefined;
  return async () => {
    try {
      if (chosen !== undefined) return await chosen();
      for (const source of sources) {
        const gpus = await source();
        if (gpus.length === 0) continue;
        chosen = source;
        return gpus;
      }
      return [];
    } catch (error) {
      if (error instanceof DockerError) return [];
      throw error;
    }
  };
}
