import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { command } from "../../tests/deploy/test-docker.ts";
import { markdownComment } from "../report/comment-markdown.ts";
import { reviewOf } from "../review.ts";
import { changeOfPlan } from "./plan-json.ts";

/** `CLIPSTACK_OPENTOFU`: folder with `bin/tofu`, as printed by `.ci/opentofu`. */
const { CLIPSTACK_OPENTOFU } = process.env;
const secret = "ephemeral-secret-4b1f";

const base = (content: string) => `
  variable "session_value" {
    type      = string
    ephemeral = true
  }
  ${content}`;

const engines = [
  {
    name: "Terraform",
    program: "terraform",
    before: 'resource "terraform_data" "v" { input = 1 }',
    after: `removed {
      from = terraform_data.v
      lifecycle { destroy = false }
    }`,
    action: "forget",
  },
  {
    name: "OpenTofu",
    program: CLIPSTACK_OPENTOFU === undefined ? "tofu" : join(CLIPSTACK_OPENTOFU, "bin", "tofu"),
    before: `resource "terraform_data" "v" {
      triggers_replace = 1
      lifecycle { destroy = false }
    }`,
    after: `resource "terraform_data" "v" {
      triggers_replace = 2
      lifecycle { destroy = false }
    }`,
    action: "replace",
  },
] as const;

for (const { name, program, before, after, action } of engines) {
  const found = (await command(program, ["version"])).code === 0;
  describe.skipIf(!found)(`plans of ${name}${found ? "" : ` (skipped: no ${program})`}`, () => {
    test("an object that is not destroyed needs attention, and an ephemeral value is not printed", async () => {
      const folder = await mkdtemp(join(tmpdir(), "clipstack-engines-"));
      const run = async (...args: readonly string[]) => {
        const result = await command(program, [`-chdir=${folder}`, ...args]);
        expect(result.code, result.output).toBe(0);
        return result.stdout;
      };
      const variable = `-var=session_value=${secret}`;
      try {
        await writeFile(join(folder, "main.tf"), base(before));
        await run("init", "-input=false");
        await run("apply", "-auto-approve", variable);
        await writeFile(join(folder, "main.tf"), base(after));
        await run("plan", "-out=plan", variable);
        const text = await run("show", "-json", "plan");
        const change = changeOfPlan({ fileName: "plan.json", text, stack: "s" });
        expect(change.resources.map((it) => it.action)).toEqual([action]);
        const review = reviewOf([change]);
        expect(review.verdict.reasons).toEqual([
          "s: v is removed from the state but not destroyed: no longer managed.",
        ]);
        expect(markdownComment(review)).not.toContain(secret);
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    });
  });
}
