import { Construct } from "constructs";
import { addressOf, DataResource, type TerraformResource } from "../cdktf.ts";
import { clipstackCommand } from "../clipstack-command.ts";
import { expression } from "../expression.ts";

export interface RolloutGateProps {
  /** How kubectl reaches the cluster: a context of a kubeconfig. */
  readonly cluster: { readonly context: string; readonly kubeconfig: string };
  /** What declares the Deployment: itself, or the Helm release that has it. Whenever it changes, it is waited for again. */
  readonly declaredBy: TerraformResource;
  /** Name of the Deployment. */
  readonly deployment: string;
  readonly namespace: string;
  /**
   * The fewest pods that must be ready.
   *
   * @default 1
   */
  readonly replicas?: number;
  /** How long it may take, in seconds. */
  readonly timeoutSeconds: number;
  /** What must be there before, besides `declaredBy`. */
  readonly dependsOn?: readonly TerraformResource[];
}

/**
 * The deployment is over when the pods of a Deployment are ready, and fails with what the pods say when they will not be:
 * their events and last log lines. The provider's own wait says neither.
 */
export class RolloutGate extends Construct {
  readonly resource: DataResource;

  constructor(scope: Construct, id: string, props: RolloutGateProps) {
    super(scope, id);

    const { cluster, declaredBy, deployment, namespace, replicas = 1, timeoutSeconds } = props;
    const where = `--context ${cluster.context} --namespace ${namespace}`;
    this.resource = new DataResource(this, "ready", {
      // one that is made anew has an id that is not known yet; one that changes triggers below
      triggersReplace: { [addressOf(declaredBy)]: expression(`${addressOf(declaredBy)}.id`) },
      dependsOn: [declaredBy, ...(props.dependsOn ?? [])],
      lifecycle: { replaceTriggeredBy: [addressOf(declaredBy)] },
      provisioners: [
        {
          type: "local-exec",
          ...clipstackCommand(
            `wait-rollout ${deployment} ${where} --replicas ${replicas} --timeout ${timeoutSeconds}`,
          ),
          environment: { KUBECONFIG: cluster.kubeconfig },
        },
      ],
    });
  }
}
