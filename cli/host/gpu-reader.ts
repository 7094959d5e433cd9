import type { Environment } from "../../contract/environment.ts";
import {
  type GpuReading,
  gpuUseArgs,
  olderGpuUseArgs,
  parseGpuUse,
} from "../../target/readings/gpu-use.ts";
import { Docker, ifReachable } from "./docker-command.ts";
import { isUnknown, runnerFor } from "./host-facts.ts";

/** Facts of an environment that tell how its GPUs are read. */
type GpuEnvironment = Pick<Environment, "accelerator" | "where" | "namespace">;

/** Runs `nvidia-smi` and returns its output; undefined if it fails or is not installed. */
type NvidiaSmi = (args: readonly string[]) => Promise<string | undefined>;

/**
 * Ways to run `nvidia-smi` for a deployed environment: in each of its containers, over the Docker endpoint that it was deployed
 * through, and on the host itself. Empty without GPUs or on a cluster.
 */
function nvidiaSmis(
  { accelerator, where, namespace }: GpuEnvironment,
  containers: readonly string[],
  signal: AbortSignal,
): readonly NvidiaSmi[] {
  if (accelerator === "cpu" || namespace !== undefined) return [];
  const docker = new Docker(where, signal);
  const onHost = runnerFor(where);
  return [
    ...containers.map(
      (name): NvidiaSmi =>
        async (args) => {
          const { exitCode, stdout } = await docker.run("exec", name, "nvidia-smi", ...args);
          return exitCode === 0 ? stdout : undefined;
        },
    ),
    async (args) => {
      const result = await onHost("nvidia-smi", args);
      return isUnknown(result) || result.exitCode !== 0 ? undefined : result.stdout;
    },
  ];
}

/**
 * Reads the GPUs of a deployed environment with `nvidia-smi`. Returns undefined without GPUs or on a cluster.
 *
 * @param containers - Container names; the first with `nvidia-smi` is used from then on.
 */
export function gpuReader(
  environment: GpuEnvironment,
  containers: readonly string[],
  signal: AbortSignal,
): (() => Promise<readonly GpuReading[]>) | undefined {
  const programs = nvidiaSmis(environment, containers, signal);
  if (programs.length === 0) return undefined;
  const sources = programs.flatMap((run) =>
    [gpuUseArgs, olderGpuUseArgs].map((args) => async () => {
      const output = await run(args);
      return output === undefined ? [] : parseGpuUse(output);
    }),
  );
  let chosen: (() => Promise<readonly GpuReading[]>) | undefined;
  const read = async () => {
    if (chosen !== undefined) return chosen();
    for (const source of sources) {
      const gpus = await source();
      if (gpus.length === 0) continue;
      chosen = source;
      return gpus;
    }
    return [];
  };
  return async () => (await ifReachable(read())) ?? [];
}

/** Reads the version of the NVIDIA driver on a deployed environment's host; undefined if unknown. */
export function driverVersion(
  environment: GpuEnvironment,
  containers: readonly string[],
  signal: AbortSignal,
): Promise<string | undefined> {
  const args = ["--query-gpu=driver_version", "--format=csv,noheader"];
  const read = async () => {
    for (const run of nvidiaSmis(environment, containers, signal)) {
      const version = (await run(args))?.split("\n")[0]?.trim() ?? "";
      if (/^\d+(\.\d+)+$/.test(version)) return version;
    }
    return undefined;
  };
  return ifReachable(read());
}

/** Runs a command in a container of a deployed environment and returns the lines of its output; undefined if it failed. */
export async function runInContainer(
  { where, namespace }: Pick<Environment, "where" | "namespace">,
  container: string,
  command: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  if (namespace !== undefined) return undefined;
  const result = await ifReachable(new Docker(where, signal).run("exec", container, ...command));
  return result?.exitCode === 0
    ? result.stdout.split("\n").filter((line) => line !== "")
    : undefined;
}
