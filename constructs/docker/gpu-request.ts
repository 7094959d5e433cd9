import type { ContainerConfig } from "#providers/docker/lib/container/index.js";
import type { GpuId } from "../checks/gpus.ts";

/**
 * GPU request of a container.
 *
 * One GPU is requested with `gpus = "device=0"`, which the Docker provider supports since 4.0. With several, such as
 * `device=0,1`, provider 4.5 fails at start ("cannot set both Count and DeviceIDs on device request"); they are requested
 * through NVIDIA's runtime and its environment variable. `all` is not used, because the host may have more GPUs than declared.
 */
export function gpuRequest(
  gpus: readonly GpuId[],
): Pick<ContainerConfig, "gpus" | "runtime"> & { readonly env: Readonly<Record<string, string>> } {
  if (gpus.length === 0) return { env: {} };
  const devices = gpus.join(",");
  return {
    ...(gpus.length === 1 ? { gpus: `device=${devices}` } : { runtime: "nvidia" }),
    env: {
      NVIDIA_VISIBLE_DEVICES: devices,
      NVIDIA_DRIVER_CAPABILITIES: "compute,utility",
    },
  };
}
