import type { Quantities } from "./checks/kubernetes.ts";

/** `1000m` is written `1`: Kubernetes stores the shortest form, and another would be a change at every plan. */
export function kubernetesCpu({ cpuMillicores }: Pick<Quantities, "cpuMillicores">): string {
  return cpuMillicores % 1000 === 0 ? String(cpuMillicores / 1000) : `${cpuMillicores}m`;
}

/** `1024Mi` is written `1Gi`. */
export function kubernetesMemory({ memoryMiB }: Pick<Quantities, "memoryMiB">): string {
  return memoryMiB % 1024 === 0 ? `${memoryMiB / 1024}Gi` : `${memoryMiB}Mi`;
}

/** `cpu` and `memory` in the units of Kubernetes. */
export function kubernetesQuantities(quantities: Quantities): {
  readonly cpu: string;
  readonly memory: string;
} {
  return { cpu: kubernetesCpu(quantities), memory: kubernetesMemory(quantities) };
}
