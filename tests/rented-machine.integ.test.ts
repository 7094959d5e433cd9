import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { providerEnvironment } from "./deploy/test-providers.ts";

/** Modules that rent a machine: their format, their arguments if the provider can be installed, and the time limit. */

const folder = mkdtempSync(join(tmpdir(), "clipstack-rented-"));
const modules = fileURLToPath(new URL("../examples/rented-machine", import.meta.url));
cpSync(modules, folder, { recursive: true });
const env = { ...process.env, ...(await providerEnvironment(folder)), CHECKPOINT_DISABLE: "1" };
const terraform = (cwd: string, args: readonly string[], input = "") =>
  spawnSync("terraform", args, { cwd, env, input, encoding: "utf8" });
const noTerraform = terraform(folder, ["version"]).status === 0 ? "" : "no terraform";

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.skipIf(noTerraform !== "")(
  `rented machines${noTerraform && ` (skipped: ${noTerraform})`}`,
  () => {
    test("the modules are formatted", () => {
      expect(terraform(folder, ["fmt", "-check", "-recursive"]).stdout).toBe("");
    });

    describe.each(["aws", "linode", "runpod"])("%s", (name) => {
      const cwd = join(folder, name);
      const init = terraform(cwd, ["init", "-input=false"]);
      const missing = init.status === 0 ? "" : "the provider cannot be installed";

      test("requires one provider", () => {
        const { status, stdout, stderr } = terraform(cwd, ["providers"]);
        expect(status, stderr).toBe(0);
        expect(stdout).toMatch(new RegExp(`provider\\[registry.terraform.io/\\w+/${name}\\]`));
      });

      test.skipIf(missing !== "")(
        `has valid arguments${missing && ` (skipped: ${missing})`}`,
        () => {
          const { status, stdout, stderr } = terraform(cwd, ["validate"]);
          expect(status, stdout + stderr).toBe(0);
        },
      );
    });

    test.each([
      [1, false],
      [0, true],
    ])("after %i hours, the machine has removed itself: %s", (hours, isRemoved) => {
      const removed = join(folder, `removed-${hours}`);
      const values = `{ hours = ${hours}, user = "root", end_command = "touch ${removed}" }`;
      const call = `jsonencode(templatefile("${folder}/first-boot.sh.tftpl", ${values}))`;
      const { stdout } = terraform(tmpdir(), ["console"], call);
      const script: string = JSON.parse(JSON.parse(stdout));
      execFileSync("sh", ["-n"], { input: script });
      const limit = script.slice(0, script.indexOf("echo '* * * * *"));
      const job = join(folder, `end-of-rental-${hours}`);
      execFileSync("sh", [], { input: limit.replaceAll("/usr/local/sbin/end-of-rental", job) });
      spawnSync(job);
      expect(existsSync(removed)).toBe(isRemoved);
    });
  },
);
