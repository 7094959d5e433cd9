import { Construct } from "constructs";
import { addressOf, DataResource, type TerraformResource } from "../terraform/cdktf.ts";
import { clipstackProvisioner } from "../terraform/clipstack-command.ts";
import { expression } from "../terraform/expression.ts";
import type { ClusterAccess } from "./cluster-access.ts";

export interface RolloutGateProps {
  readonly cluster: ClusterAccess;
  /** Deployment, or the Helm release that contains it. The gate runs again whenever it changes. */
  readonly declaredBy: TerraformResource;
  /** Name of the Deployment. */
  readonly deployment: string;
  readonly namespace: string;
  /**
   * Minimum number of ready pods.
   *
   * @default 1
   */
  readonly replicas?: number;
  readonly timeoutSeconds: number;
  /**
   * Further resources that must exist first.
   *
   * @default - none
   */
  readonly dependsOn?: readonly TerraformResource[];
}

/**
 * Waits until the pods of a Deployment are ready. On failure it prints their events and the end of their logs, which the
 * provider's own wait does not.
 */
export class RolloutGate extends Construct {
  readonly resource: DataResource;

  constructor(scope: Construct, id: string, props: RolloutGateProps) {
    super(scope, id);

    const { cluster, declaredBy, deployment, namespace, replicas = 1, timeoutSeconds } = props;
    const target = `--context ${cluster.context} --namespace ${namespace}`;
    this.resource = new DataResource(this, "ready", {
      // a recreated resource has an unknown id; a resource updated in place triggers `replaceTriggeredBy`
      triggersReplace: { [addressOf(declaredBy)]: expression(`${addressOf(declaredBy)}.id`) },
      dependsOn: [declaredBy, ...(props.dependsOn ?? [])],
      lifecycle: { replaceTriggeredBy: [addressOf(declaredBy)] },
      provisioners: [
        clipstackProvisioner(
          `wait-rollout ${deployment} ${target} --replicas ${replicas} --timeout ${timeoutSeconds}`,
          { KUBECONFIG: cluster.kubeconfig },
          cluster.command,
        ),
      ],
    });
  }
}
