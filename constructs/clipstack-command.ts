import { projectFolder } from "./expression.ts";

/**
 * How Terraform runs a command of clipstack, on the machine that deploys. Terraform runs in `cdktf.out/stacks/<name>`;
 * the command runs in the project, and is one that a person can type there.
 *
 * What is secret, or may hold a space, goes into the environment of the command and never into its text.
 */
export function clipstackCommand(text: string): {
  readonly command: string;
  readonly workingDir: string;
} {
  return {
    command: `node cli/clipstack.mjs ${text}`,
    workingDir: projectFolder,
  };
}
