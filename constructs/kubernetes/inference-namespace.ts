import { LimitRangeV1 } from "@cdktf/provider-kubernetes/lib/limit-range-v1/index.js";
import { NamespaceV1 } from "@cdktf/provider-kubernetes/lib/namespace-v1/index.js";
import { ResourceQuotaV1 } from "@cdktf/provider-kubernetes/lib/resource-quota-v1/index.js";
import { Construct } from "constructs";
import { labelNames, podAppName, podSecurity } from "../../contract/pods.ts";
import { addressOf, DataResource } from "../cdktf.ts";
import type { Quantities, Quota } from "../checks/kubernetes.ts";
import type { KindCluster } from "../kind/kind-cluster.ts";
import { quotaQuantities, rangeQuantities } from "./kubernetes-quantities.ts";

/** What one container gets when it does not say, and the most that it may say. */
export interface ContainerRange {
  readonly defaultRequests: Quantities;
  readonly defaultLimits: Quantities;
  readonly max: Quantities;
}

/** What declares the objects of a namespace: typed resources, or the project's Helm chart. */
export type DeployWith = "kubernetes" | "helm";

export interface InferenceNamespaceProps {
  readonly name: string;
  readonly cluster: KindCluster;
  /** What declares what is in it; with `helm` the quota and the range too. Another one makes the namespace anew. */
  readonly deployWith: DeployWith;
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
    // Objects of the same names, declared in two ways, cannot follow each other: Helm takes over nothing. With the namespace
    // all of the one is gone before anything of the other is made.
    const way = new DataResource(this, "way", {
      triggersReplace: { deployWith: props.deployWith },
    });
    this.namespace = new NamespaceV1(this, "namespace", {
      metadata: {
        name: props.name,
        labels: {
          // the API server refuses pods that are not hardened
          [podSecurity.label]: podSecurity.level,
        },
      },
      dependsOn: [props.cluster.cluster],
      lifecycle: { replaceTriggeredBy: [addressOf(way)] },
    });
    if (props.deployWith === "helm") return;
    const metadata = {
      name: podAppName,
      namespace: this.namespace.metadata.name,
      labels: { [labelNames.name]: podAppName, [labelNames.instance]: podAppName },
    };
    new ResourceQuotaV1(this, "quota", {
      metadata,
      spec: { hard: quotaQuantities(props.quota) },
    });
    new LimitRangeV1(this, "limit-range", {
      metadata,
      spec: { limit: [{ type: "Container", ...rangeQuantities(props.limitRange) }] },
    });
  }
}
