import type { ContainerRange, Quantities, Quota } from "../checks/kubernetes.ts";

/** `1000m` is written `1`: Kubernetes stores the shortest form, and another would be a change at every plan. */
export function kubernetesCpu({ cpuMillicores }: Pick<Quantities, "cpuMillicores">): string {
  return shortest(cpuMillicores, 1000, ["m", "", "k"]);
}

/** `1024Mi` is written `1Gi`. */
export function kubernetesMemory({ memoryMiB }: Pick<Quantities, "memoryMiB">): string {
  return shortest(memoryMiB, 1024, ["Mi", "Gi", "Ti"]);
}

/** In the largest unit in which it is a whole number. */
function shortest(count: number, step: number, [unit = "", ...larger]: readonly string[]): string {
  return larger.length > 0 && count > 0 && count % step === 0
    ? shortest(count / step, step, larger)
    : `${count}${unit}`;
}

/** `cpu` and `memory` in the units of Kubernetes. */
export function kubernetesQuantities(quantities: Quantities): {
  readonly cpu: string;
  readonly memory: string;
} {
  return { cpu: kubernetesCpu(quantities), memory: kubernetesMemory(quantities) };
}

/** `hard` of a ResourceQuota. */
export function quotaQuantities({ requests, limits, pods }: Quota) {
  return {
    "requests.cpu": kubernetesCpu(requests),
    "requests.memory": kubernetesMemory(requests),
    "limits.cpu": kubernetesCpu(limits),
    "limits.memory": kubernetesMemory(limits),
    pods: String(pods),
  };
}

/** What a LimitRange says of containers. */
export function rangeQuantities({ defaultRequests, defaultLimits, max }: ContainerRange) {
  return {
    defaultRequest: kubernetesQuantities(defaultRequests),
    default: kubernetesQuantities(defaultLimits),
    max: kubernetesQuantities(max),
  };
}
