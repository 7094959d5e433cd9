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
 * `local-exec` provisioner that runs `command` in the project's folder on the deploying machine. Terraform itself runs in
 * `cdktf.out/stacks/<name>`.
 *
 * @param environment - Secrets and values that may contain a space, which `args` must not.
 */
export function clipstackProvisioner(
  args: string,
  environment: Record<string, string>,
  command = "npx --no-install clipstack",
) {
  return {
    type: "local-exec" as const,
    command: `${command} ${args}`,
    workingDir: projectFolder,
    environment,
  };
}
