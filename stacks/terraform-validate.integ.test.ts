import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, test } from "vitest";
import { environmentNames } from "./settings.ts";
import { synthesize } from "./synthesize.ts";

/**
 * The real Terraform with the real providers reads what was synthesized. Providers come from the registry, from a
 * mirror of the CLI configuration, or from the folder that `CLIPSTACK_TF_PLUGIN_DIR` names.
 */
let outdir = "";

beforeAll(() => {
  outdir = join(mkdtempSync(join(tmpdir(), "clipstack-validate-")), "cdktf.out");
  synthesize({ settings: fileURLToPath(new URL(".", import.meta.url)), outdir });
});

function terraform(cwd: string, ...args: readonly string[]) {
  const env: NodeJS.ProcessEnv = { ...process.env, CHECKPOINT_DISABLE: "1" };
  if (!existsSync(env.TF_CLI_CONFIG_FILE ?? "")) delete env.TF_CLI_CONFIG_FILE;
  return spawnSync("terraform", [...args, "-no-color"], {
    cwd,
    env,
    encoding: "utf8",
    timeout: 120_000,
  });
}

/** Why Terraform cannot read a stack on this machine. */
function missing(cwd: string): string | undefined {
  const plugins = process.env.CLIPSTACK_TF_PLUGIN_DIR;
  const from = plugins === undefined ? [] : [`-plugin-dir=${plugins}`];
  const init = terraform(cwd, "init", "-backend=false", "-input=false", ...from);
  if (init.error !== undefined) return `terraform cannot be run: ${init.error.message}`;
  if (init.status === 0) return undefined;
  const provider = /versions for provider\s+(\S+?):/.exec(init.stderr)?.[1] ?? "its providers";
  return `terraform init cannot get ${provider} on this machine`;
}

for (const environment of environmentNames) {
  test(`terraform accepts ${environment}`, ({ skip }) => {
    const cwd = join(outdir, "stacks", environment);
    const reason = missing(cwd);
    if (reason !== undefined) skip(reason);
    const { stdout } = terraform(cwd, "validate", "-json");
    const { valid, diagnostics } = JSON.parse(stdout);
    expect(diagnostics).toEqual([]);
    expect(valid).toBe(true);
  });
}
