import { Construct } from "constructs";
import { DataResource, Lazy, TerraformStack } from "../terraform/cdktf.ts";
import { clipstackProvisioner, type RunsClipstack } from "../terraform/clipstack-command.ts";
import { expression } from "../terraform/expression.ts";
import {
  type ClusterRequirements,
  clusterRequirements,
  clusterRequirementsVariable,
} from "./cluster-requirements.ts";

export interface ClusterCheckProps extends RunsClipstack {
  readonly kubeconfig: string;
  readonly context: string;
  /** Returns the requirements. Called at synthesis, after all services have added theirs. */
  readonly requirements: () => ClusterRequirements;
}

/**
 * Runs `clipstack doctor` before any object is created in the cluster, and again when the requirements change. The
 * deployment fails if a requirement is not met; the output lists what is missing and how to fix it.
 */
export class ClusterCheck extends Construct {
  readonly resource: DataResource;
  /**
   * Path of the kubeconfig as a Terraform expression, known at plan time. A provider configured with it depends on the
   * check, and so do its resources.
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
      // the deployed objects stay while the check is replaced
      lifecycle: { createBeforeDestroy: true },
      provisioners: [
        clipstackProvisioner(
          `doctor ${TerraformStack.of(this).node.id}`,
          { [clusterRequirementsVariable]: expression("jsonencode(self.triggers_replace)") },
          props.command,
        ),
      ],
    });
    this.configPath = expression(`${this.resource.fqn}.input.kubeconfig`);
  }
}
