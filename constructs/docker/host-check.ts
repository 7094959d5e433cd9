import { Construct } from "constructs";
import { DataResource, Lazy, TerraformStack } from "../terraform/cdktf.ts";
import { clipstackProvisioner, type RunsClipstack } from "../terraform/clipstack-command.ts";
import { expression } from "../terraform/expression.ts";
import {
  type HostRequirements,
  hostRequirements,
  hostRequirementsVariable,
} from "./host-requirements.ts";

export interface HostCheckProps extends RunsClipstack {
  /**
   * Docker endpoint of the host.
   *
   * @default - the endpoint of the docker command line on this machine
   */
  readonly docker?: string;
  /**
   * When the check runs again. `never` if a provider depends on the check: replacing the check would create a dependency
   * cycle with the resources that the provider destroys.
   *
   * @default "with-requirements" - when the requirements change
   */
  readonly repeats?: "with-requirements" | "never";
  /** Returns the requirements. Called at synthesis, after all services have added theirs. */
  readonly requirements: () => HostRequirements;
}

/**
 * Runs `clipstack doctor` before any resource is created on the host. The deployment fails if a requirement is not met;
 * the output lists what is missing and how to fix it.
 */
export class HostCheck extends Construct {
  readonly resource: DataResource;
  /**
   * Docker endpoint as a Terraform expression, known at plan time. A provider configured with it depends on the check, and
   * so do its resources.
   */
  readonly docker: string;

  constructor(scope: Construct, id: string, props: HostCheckProps) {
    super(scope, id);

    const { docker, repeats, requirements, command } = props;

    this.resource = new DataResource(this, "doctor", {
      input: docker === undefined ? undefined : { docker },
      triggersReplace: Lazy.anyValue({ produce: () => hostRequirements.parse(requirements()) }),
      lifecycle: repeats === "never" ? { ignoreChanges: ["triggers_replace"] } : undefined,
      provisioners: [
        clipstackProvisioner(
          `doctor ${TerraformStack.of(this).node.id}`,
          { [hostRequirementsVariable]: expression("jsonencode(self.triggers_replace)") },
          command,
        ),
      ],
    });
    this.docker = expression(`${this.resource.fqn}.input.docker`);
  }
}
