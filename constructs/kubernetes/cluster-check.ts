import { Construct } from "constructs";
import { DataResource, Lazy, TerraformStack } from "../cdktf.ts";
import { clipstackCommand } from "../clipstack-command.ts";
import { expression } from "../expression.ts";
import {
  type ClusterRequirements,
  clusterRequirements,
  clusterRequirementsVariable,
} from "./cluster-requirements.ts";

export interface ClusterCheckProps {
  readonly kubeconfig: string;
  readonly context: string;
  /** What the cluster must have. Called when the tree is complete, since services add to it. */
  readonly requirements: () => ClusterRequirements;
}

/**
 * Asks `clipstack doctor` whether the cluster has what the environment needs, before anything is made there. What is missing
 * stops the deployment, in plain words. It runs again when the requirements change, and only then.
 */
export class ClusterCheck extends Construct {
  readonly resource: DataResource;
  /**
   * The kubeconfig, as an expression. A provider that takes it from here waits for the check, and so does all that it makes.
   * Its value is known when a plan is made.
   */
  readonly configPath: string;

  constructor(scope: Construct, id: string, props: ClusterCheckProps) {
    super(scope, id);

    this.resource = new DataResource(this, "doctor", {
      input: {
        kubeconfig: expression(`pathexpand("${props.kubeconfig}")`),
        context: props.context,
      },
      triggersReplace: Lazy.anyValue({
        produce: () => clusterRequirements.parse(props.requirements()),
      }),
      // what is deployed goes on while the check is made anew
      lifecycle: { createBeforeDestroy: true },
      provisioners: [
        {
          type: "local-exec",
          ...clipstackCommand(`doctor ${TerraformStack.of(this).node.id}`),
          environment: {
            [clusterRequirementsVariable]: expression("jsonencode(self.triggers_replace)"),
          },
        },
      ],
    });
    this.configPath = expression(`${this.resource.fqn}.input.kubeconfig`);
  }
}
