import { spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { cp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, test } from "vitest";
import { providerEnvironment } from "../tests/deploy/test-providers.ts";
import { exampleEnvironments, shippedEnvironments } from "./settings/environment-files.ts";
import { synthesize } from "./synthesize.ts";

/** The real Terraform with the real providers, where it finds them, reads what was synthesized. */
let outdir = "";
let places: NodeJS.ProcessEnv = {};

beforeAll(async () => {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-validate-"));
  outdir = join(folder, "cdktf.out");
  places = await providerEnvironment(folder);
  const environments = join(folder, "environments");
  await cp(fileURLToPath(new URL("../environments", import.meta.url)), environments, {
    recursive: true,
  });
  await writeFile(join(environments, "acme.yaml"), acme);
  const { rejected } = await synthesize({ environments, outdir });
  expect(rejected).toEqual([]);
});

const acme = `stack: single-gpu
embed: { expose: all-interfaces, tls: { acme: { domain: gpu.example.com, email: ops@example.com } } }
tritonOnnx: { expose: all-interfaces, allowUnauthenticated: true }
`;

function terraform(cwd: string, ...args: readonly string[]) {
  return spawnSync("terraform", [...args, "-no-color"], {
    cwd,
    env: { ...process.env, ...places, CHECKPOINT_DISABLE: "1" },
    encoding: "utf8",
    timeout: 120_000,
  });
}

/** Reason why Terraform cannot validate a stack on this machine. */
function missing(cwd: string): string | undefined {
  const init = terraform(cwd, "init", "-backend=false", "-input=false");
  if (init.error !== undefined) return `terraform cannot be run: ${init.error.message}`;
  if (init.status === 0) return undefined;
  const provider = /versions for provider\s+(\S+?):/.exec(init.stderr)?.[1] ?? "its providers";
  return `terraform init cannot get ${provider} on this machine`;
}

for (const environment of [...shippedEnvironments, ...exampleEnvironments, "acme"]) {
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
