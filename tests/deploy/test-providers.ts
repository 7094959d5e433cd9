import { mkdir, symlink, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";

/**
 * Returns the environment variables with which Terraform and OpenTofu search providers in their default folders and in the mirror
 * `CLIPSTACK_TF_PLUGIN_DIR`. Other providers are downloaded from the registry.
 *
 * @param folder - Folder for the written configuration.
 */
export async function providerEnvironment(folder: string): Promise<NodeJS.ProcessEnv> {
  const { CLIPSTACK_TF_PLUGIN_DIR: mirror, XDG_DATA_DIRS } = process.env;
  // the user's configuration could set other folders
  const cliConfig = join(folder, "terraform.rc");
  await writeFile(cliConfig, "");
  if (mirror === undefined) return { TF_CLI_CONFIG_FILE: cliConfig };
  const share = join(folder, "terraform-share");
  for (const program of ["terraform", "opentofu"]) {
    await mkdir(join(share, program), { recursive: true });
    await symlink(mirror, join(share, program, "plugins"));
  }
  return {
    TF_CLI_CONFIG_FILE: cliConfig,
    XDG_DATA_DIRS: [share, XDG_DATA_DIRS || "/usr/local/share:/usr/share"].join(delimiter),
  };
}
