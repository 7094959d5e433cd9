import { Construct } from "constructs";
import { DataResource, Lazy, TerraformStack } from "../cdktf.ts";
import { clipstackCommand } from "../clipstack-command.ts";
import { expression } from "../expression.ts";
import {
  type HostRequirements,
  hostRequirements,
  hostRequirementsVariable,
} from "./host-requirements.ts";

export interface HostCheckProps {
  /**
   * Docker endpoint of the host.
   *
   * @default - this machine's, as the docker command line has it
   */
  readonly docker?: string;
  /**
   * When it runs again. `never` where a provider that deletes things waits for the check, and so for what the check would
   * wait for: a circle.
   *
   * @default "with-requirements" - when they change
   */
  readonly repeats?: "with-requirements" | "never";
  /** What the host must have. Called when the tree is complete, since services add to it. */
  readonly requirements: () => HostRequirements;
}

/**
 * Asks `clipstack doctor` whether the host has what the environment needs, before anything is made there. What is missing
 * stops the deployment, in plain words. It runs again when the requirements change, and only then.
 */
export class HostCheck extends Construct {
  readonly resource: DataResource;
  /**
   * The endpoint, as an expression. A provider that takes it from here waits for the check, and so does all that it makes.
   * Its value is known when a plan is made.
   */
  readonly docker: string;

  constructor(scope: Construct, id: string, { docker, repeats, requirements }: HostCheckProps) {
    super(scope, id);

    this.resource = new DataResource(this, "doctor", {
      input: docker === undefined ? undefined : { docker },
      triggersReplace: Lazy.anyValue({ produce: () => hostRequirements.parse(requirements()) }),
      lifecycle: repeats === "never" ? { ignoreChanges: ["triggers_replace"] } : undefined,
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
    this.docker = expression(`${this.resource.fqn}.input.docker`);
  }
}
