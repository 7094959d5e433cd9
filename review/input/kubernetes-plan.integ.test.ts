import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseSettings } from "../../stacks/settings/settings.ts";
import { writeStacks } from "../../stacks/write-stacks.ts";
import { testDocker } from "../../tests/deploy/test-docker.ts";
import { providerEnvironment } from "../../tests/deploy/test-providers.ts";
import { reviewOf } from "../review.ts";
import { planLines } from "../test-plans.ts";
import { changeOfDocuments } from "./document-change.ts";
import { changeOfPlan } from "./plan-json.ts";
import { parseDocument } from "./synthesized-document.ts";

/**
 * Plans `kind-local` with the kubernetes provider before the cluster exists. `CLIPSTACK_WRITE_PLANS=1` saves the plan.
 */

const folder = mkdtempSync(join(tmpdir(), "clipstack-review-kubernetes-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const { docker, missing: noEngine } = await testDocker();
const places = await providerEnvironment(folder);
const cwd = join(folder, "cdktf.out", "stacks", "kind-local");

function terraform(...args: readonly string[]) {
  return spawnSync("terraform", [...args, "-no-color"], {
    cwd,
    env: { ...process.env, ...places, CHECKPOINT_DISABLE: "1", DOCKER_HOST: docker.endpoint },
    encoding: "utf8",
    timeout: 240_000,
    maxBuffer: 64 * 1024 * 1024,
  });
}

/** Writes the stack without the unused helm provider and runs `terraform init`; returns what is missing. */
function prepared(): string {
  const settings = parseSettings("kind", "defaults", "");
  writeStacks([{ name: "kind-local", stack: "kind", settings }], {
    outdir: join(folder, "cdktf.out"),
  });
  const file = join(cwd, "cdk.tf.json");
  const document = JSON.parse(readFileSync(file, "utf8"));
  delete document.provider.helm;
  delete document.terraform.required_providers.helm;
  document.terraform.backend = { local: { path: "terraform.tfstate" } };
  writeFileSync(file, JSON.stringify(document, undefined, 1));
  // the plan requires the file of the weights but does not read it
  mkdirSync(join(folder, "model_repository/openclip_vit_b32/1"), { recursive: true });
  writeFileSync(join(folder, "model_repository/openclip_vit_b32/1/model.onnx"), "");
  const { error, status, stderr } = terraform("init", "-input=false");
  if (error !== undefined) return `terraform cannot be started: ${error.message}`;
  if (status === 0) return "";
  const provider = /versions for provider\s+(\S+?):/.exec(stderr)?.[1] ?? "its providers";
  return `terraform init finds no ${provider}`;
}

const missing = noEngine || prepared();

describe.skipIf(missing !== "")(
  `a plan of the kubernetes provider${missing && ` (not here: ${missing})`}`,
  () => {
    let text = "";
    beforeAll(() => {
      const plan = terraform("plan", "-input=false", "-out=plan");
      expect(plan.status, plan.stderr).toBe(0);
      const json = terraform("show", "-json", "plan");
      const {
        prior_state: _state,
        planned_values: _planned,
        timestamp: _time,
        ...kept
      } = JSON.parse(
        json.stdout.replaceAll(folder, "/project").replaceAll(homedir(), "/home/user"),
      );
      text = planLines(kept);
      if (process.env.CLIPSTACK_WRITE_PLANS === "1") {
        writeFileSync(
          fileURLToPath(new URL("./plans/kind-local-create.plan.json", import.meta.url)),
          text,
        );
      }
    });

    test("has the actions, exposure and capacity of the synthesized file", () => {
      const head = parseDocument(readFileSync(join(cwd, "cdk.tf.json"), "utf8"), "cdk.tf.json");
      const [ofPlan, ofDocuments] = [
        changeOfPlan({ fileName: "plan", text }),
        changeOfDocuments("kind-local", undefined, head),
      ].map((change) => reviewOf([change]).stacks[0]!);
      const addresses = (review: typeof ofPlan) =>
        review?.changes.map(({ action, address }) => `${action} ${address}`).sort();
      expect(addresses(ofPlan)).toEqual(addresses(ofDocuments));
      expect(ofPlan?.exposures).toEqual(ofDocuments?.exposures);
      expect(ofPlan?.capacity).toEqual(ofDocuments?.capacity);
    });
  },
);
