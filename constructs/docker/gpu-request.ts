import type { ContainerConfig } from "@cdktf/provider-docker/lib/container/index.js";
import type { GpuId } from "../checks/gpus.ts";

/**
 * How a container asks Docker for GPUs, and the only place that decides it.
 *
 * One GPU: `gpus = "device=0"`, which the docker provider understands from 4.0 on. Several: provider 4.5 fails at
 * start on `device=0,1` ("cannot set both Count and DeviceIDs on device request"), so these take NVIDIA's runtime and
 * its variable. Never `all`: a host with more GPUs than described would lose them to one container.
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
