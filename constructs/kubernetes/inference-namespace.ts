import { Construct } from "constructs";
import { LimitRangeV1 } from "#providers/kubernetes/lib/limit-range-v1/index.js";
import { ResourceQuotaV1 } from "#providers/kubernetes/lib/resource-quota-v1/index.js";
import { labelNames, podAppName } from "../../contract/pods.ts";
import type { ContainerRange, Quota } from "../checks/kubernetes.ts";
import { checkedProps } from "../checks/props.ts";
import { addressOf, DataResource } from "../terraform/cdktf.ts";
import type { ClusterAccess } from "./cluster-access.ts";
import { HardenedNamespace } from "./hardened-namespace.ts";
import { quotaQuantities, rangeQuantities } from "./kubernetes-quantities.ts";

/** Declaration of the objects in a namespace: typed resources, or the project's Helm chart. */
export type DeployWith = "kubernetes" | "helm";

export interface InferenceNamespaceProps {
  /** Name of the namespace. */
  readonly name: string;
  readonly cluster: ClusterAccess;
  /**
   * Declaration of the objects in the namespace. With `helm`, the chart declares the quota and the limit range. A change
   * recreates the namespace.
   *
   * @default "kubernetes"
   */
  readonly deployWith?: DeployWith;
  /** Limit of the resources of all pods in the namespace. */
  readonly quota: Quota;
  /** Default and maximum resources of one container. */
  readonly limitRange: ContainerRange;
}

/** Namespace with a resource quota and a limit range. */
export class InferenceNamespace extends Construct {
  readonly name: string;
  readonly quota: Quota;
  readonly limitRange: ContainerRange;
  readonly namespace: HardenedNamespace;

  constructor(scope: Construct, id: string, props: InferenceNamespaceProps) {
    super(scope, id);

    checkedProps(this, props);
    const { cluster, deployWith = "kubernetes" } = props;
    this.name = props.name;
    this.quota = props.quota;
    this.limitRange = props.limitRange;
    // Helm adopts no existing objects, so the namespace is replaced before the other declaration creates objects of the
    // same names.
    const declaration = new DataResource(this, "deploy-with", { triggersReplace: { deployWith } });
    this.namespace = new HardenedNamespace(this, "namespace", props.name, {
      dependsOn: cluster.resource === undefined ? undefined : [cluster.resource],
      lifecycle: { replaceTriggeredBy: [addressOf(declaration)] },
    });
    if (deployWith === "helm") return;
    const metadata = {
      name: podAppName,
      namespace: this.namespace.namespaceName,
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
