import { LimitRangeV1 } from "@cdktf/provider-kubernetes/lib/limit-range-v1/index.js";
import { NamespaceV1 } from "@cdktf/provider-kubernetes/lib/namespace-v1/index.js";
import { ResourceQuotaV1 } from "@cdktf/provider-kubernetes/lib/resource-quota-v1/index.js";
import { Construct } from "constructs";
import type { Quantities, Quota } from "./checks/kubernetes.ts";
import type { KindCluster } from "./kind-cluster.ts";

/** What one container gets when it does not say, and the most that it may say. */
export interface ContainerRange {
  readonly defaultRequests: Quantities;
  readonly defaultLimits: Quantities;
  readonly max: Quantities;
}

export interface InferenceNamespaceProps {
  readonly name: string;
  readonly cluster: KindCluster;
  /** What all pods of the namespace may have together. */
  readonly quota: Quota;
  readonly limitRange: ContainerRange;
}

/** A namespace with a budget: a quota for all of it and a range for each container. */
export class InferenceNamespace extends Construct {
  readonly name: string;
  readonly quota: Quota;
  readonly limitRange: ContainerRange;
  readonly namespace: NamespaceV1;

  constructor(scope: Construct, id: string, props: InferenceNamespaceProps) {
    super(scope, id);

    this.name = props.name;
    this.quota = props.quota;
    this.limitRange = props.limitRange;
    this.namespace = new NamespaceV1(this, "namespace", {
      metadata: {
        name: props.name,
        labels: {
          // the API server refuses pods that are not hardened
          "pod-security.kubernetes.io/enforce": "restricted",
        },
      },
      dependsOn: [props.cluster.cluster],
    });
    const metadata = { name: "inference", namespace: this.namespace.metadata.name };
    const { requests, limits, pods } = props.quota;
    new ResourceQuotaV1(this, "quota", {
      metadata,
      spec: {
        hard: {
          "requests.cpu": kubernetesCpu(requests),
          "requests.memory": kubernetesMemory(requests),
          "limits.cpu": kubernetesCpu(limits),
          "limits.memory": kubernetesMemory(limits),
          pods: String(pods),
        },
      },
    });
    new LimitRangeV1(this, "limit-range", {
      metadata,
      spec: {
        limit: [
          {
            type: "Container",
            defaultRequest: kubernetesQuantities(props.limitRange.defaultRequests),
            default: kubernetesQuantities(props.limitRange.defaultLimits),
            max: kubernetesQuantities(props.limitRange.max),
          },
        ],
      },
    });
  }
}

/** `1000m` is written `1`: Kubernetes stores the shortest form, and another would be a change at every plan. */
function kubernetesCpu({ cpuMillicores }: Quantities): string {
  return cpuMillicores % 1000 === 0 ? String(cpuMillicores / 1000) : `${cpuMillicores}m`;
}

function kubernetesMemory({ memoryMiB }: Quantities): string {
  return memoryMiB % 1024 === 0 ? `${memoryMiB / 1024}Gi` : `${memoryMiB}Mi`;
}

/** `cpu` and `memory` in the units of Kubernetes. */
export function kubernetesQuantities(quantities: Quantities) {
  return { cpu: kubernetesCpu(quantities), memory: kubernetesMemory(quantities) };
}
