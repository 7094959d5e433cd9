import { LocalBackend, type TerraformStack } from "./cdktf.ts";

/**
 * Keep the state of `stack` in the project's folder. The path is relative to `cdktf.out/stacks/<name>`, where Terraform
 * runs: the backend that a stack has without this writes the absolute path of the machine that synthesized it.
 */
export function keepStateLocally(stack: TerraformStack): void {
  new LocalBackend(stack, { path: `../../../terraform.${stack.node.id}.tfstate` });
}
