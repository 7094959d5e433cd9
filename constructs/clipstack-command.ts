import { projectFolder } from "./expression.ts";

/** Construct that runs the clipstack command during a deployment. */
export interface RunsClipstack {
  /**
   * clipstack command line, run in the project's folder.
   *
   * @default "npx --no-install clipstack" - the installed command, which npx does not download
   */
  readonly command?: string;
}

/**
 * Arguments of a `local-exec` provisioner that runs `command` in the project's folder on the deploying machine. Terraform
 * itself runs in `cdktf.out/stacks/<name>`.
 *
 * Secrets and values that may contain a space belong in the environment of the provisioner, never in `args`.
 */
export function clipstackCommand(args: string, command = "npx --no-install clipstack") {
  return { command: `${command} ${args}`, workingDir: projectFolder };
}
