import type { ContainerRange, Quantities, Quota, Replicas } from "../checks/kubernetes.ts";

/**
 * CPU quantity in its shortest form, such as `1` for `1000m`. Kubernetes stores that form, and another one would appear as a
 * change in every plan.
 */
export function kubernetesCpu({ cpuMillicores }: Pick<Quantities, "cpuMillicores">): string {
  return shortest(cpuMillicores, 1000, ["m", "", "k"]);
}

/** Memory quantity in its shortest form, such as `1Gi` for `1024Mi`. */
export function kubernetesMemory({ memoryMiB }: Pick<Quantities, "memoryMiB">): string {
  return shortest(memoryMiB, 1024, ["Mi", "Gi", "Ti"]);
}

/** Formats a quantity in the largest unit in which it is an integer. */
function shortest(count: number, step: number, [unit = "", ...larger]: readonly string[]): string {
  return larger.length > 0 && count > 0 && count % step === 0
    ? shortest(count / step, step, larger)
    : `${count}${unit}`;
}

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

/** Defaults and maximum of a LimitRange of type `Container`. */
export function rangeQuantities({ defaultRequests, defaultLimits, max }: ContainerRange) {
  return {
    defaultRequest: kubernetesQuantities(defaultRequests),
    default: kubernetesQuantities(defaultLimits),
    max: kubernetesQuantities(max),
  };
}

/** `embed (2 to 6 pods)`. */
export function podSummary(service: string, { minReplicas, maxReplicas }: Replicas): string {
  if (minReplicas < maxReplicas) return `${service} (${minReplicas} to ${maxReplicas} pods)`;
  return `${service} (${minReplicas} pod${minReplicas === 1 ? "" : "s"})`;
}
