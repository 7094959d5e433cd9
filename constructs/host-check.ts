import { Construct } from "constructs";
import { DataResource, Lazy, TerraformStack } from "./cdktf.ts";
import { clipstackCommand } from "./clipstack-command.ts";
import { expression } from "./expression.ts";
import {
  type HostRequirements,
  hostRequirements,
  hostRequirementsVariable,
} from "./host-requirements.ts";

export interface HostCheckProps {
  /** What the host must have. Called when the tree is complete, since services add to it. */
  readonly requirements: () => HostRequirements;
}

/**
 * Asks `clipstack doctor` whether the host has what the environment needs, before anything else is made there. What is
 * missing stops the deployment, in plain words. It runs again when the requirements change, and only then.
 */
export class HostCheck extends Construct {
  /** Everything that is made on the host depends on it. */
  readonly resource: DataResource;

  constructor(scope: Construct, id: string, { requirements }: HostCheckProps) {
    super(scope, id);

    this.resource = new DataResource(this, "doctor", {
      triggersReplace: Lazy.anyValue({ produce: () => hostRequirements.parse(requirements()) }),
      provisioners: [
        {
          type: "local-exec",
          ...clipstackCommand(`doctor ${TerraformStack.of(this).node.id}`),
          environment: {
            [hostRequirementsVariable]: expression("jsonencode(self.triggers_replace)"),
          },
        },
      ],
    });
  }
}
