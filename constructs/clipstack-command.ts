import { projectFolder } from "./expression.ts";

/** Installed command line. npx fails if it is not installed instead of downloading it. */
export const installedCommand = "npx --no-install clipstack";

/**
 * Arguments of a `local-exec` provisioner that runs `command` in the project's folder on the deploying machine. Terraform
 * itself runs in `cdktf.out/stacks/<name>`.
 *
 * Secrets and values that may contain a space belong in the environment of the provisioner, never in `args`.
 */
export function clipstackCommand(
  args: string,
  command = installedCommand,
): {
  readonly command: string;
  readonly workingDir: string;
} {
  return { command: `${command} ${args}`, workingDir: projectFolder };
}
