import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { markdownComment } from "../report/comment-markdown.ts";
import { reviewOf } from "../review.ts";
import { findingsOfChange } from "../rules/findings.ts";
import { clusterPlanCases, planCases, plannedText, savedChange } from "../test-plans.ts";
import { changeOfPlan } from "./plan-json.ts";

function reviewed(name: string) {
  const text = readFileSync(new URL(`./plans/engines/${name}.plan.json`, import.meta.url), "utf8");
  const change = changeOfPlan({ fileName: name, text, stack: "s" });
  const findings = findingsOfChange(change, { waivers: [], today: "2026-11-30" });
  const review = reviewOf([change], { findings });
  return { reasons: review.verdict.reasons, comment: markdownComment(review) };
}

const forgotten = "removed from the state but not destroyed: no longer managed.";

/** The plan of OpenTofu 1.12 is real; the others have the form of `internal/command/jsonplan` of these versions. */
test.each(
  Object.entries<readonly string[]>({
    "opentofu-1.11-ephemeral": [
      "s: 1 resource opened during the apply changes but was not examined: kv secret registry.",
      "s: 1 rule is violated (severity warning): environment-lost.",
    ],
    "opentofu-1.12-forget": [`s: v, w are ${forgotten}`],
    "terraform-1.12-write-only": [
      "s: 1 resource with values that the review does not know (data_wo) changes but was not examined: secret registry.",
    ],
    "terraform-1.13-deferred": [
      "s: A second plan and apply is required for container triton (created), volume engines (replaced).",
      "s: The plan is incomplete: a second plan and apply is required.",
    ],
    "terraform-1.14-actions": [
      "s: The apply invokes provider actions, whose effects no plan shows: local_command manual, local_command warm (after create of release).",
      "s: A second plan and apply is required for local_command late.",
    ],
    "terraform-1.14-forget": [`s: volume weights, volume engines are ${forgotten}`],
  }),
)("names what it does not know in a plan of %s", (name, reasons) => {
  const review = reviewed(name);
  expect(review.reasons).toEqual(reasons);
  expect(review.comment).not.toMatch(/ephemeral-secret|action-argument|content is lost/);
});

test.each([
  ...planCases.map(({ name }) => name),
  ...clusterPlanCases.map(({ name }) => name),
  ...readdirSync(new URL("./plans/engines/", import.meta.url)).map(
    (file) => `engines/${file.replace(".plan.json", "")}`,
  ),
])("no reason of %s contains a Terraform address", (name) => {
  const change = savedChange(name);
  const findings = findingsOfChange(change, { waivers: [], today: "2026-11-30" });
  for (const reason of reviewOf([change], { findings }).verdict.reasons) {
    expect(reason).not.toMatch(/[a-z]+_[a-z_]+\.[a-z]|_[0-9A-F]{8}\b/);
  }
});

test("names the program that created a plan", () => {
  expect(reviewed("opentofu-1.11-ephemeral").comment).toContain("plan of OpenTofu 1.11.3 |");
  expect(reviewed("terraform-1.14-forget").comment).toContain("plan of Terraform 1.14.0 |");
});

test.each(["docker_container", "docker_volume", "helm_release", "kubernetes_secret_v1"])(
  "a %s that is replaced and not destroyed is not safe",
  (type) => {
    const name = { name: "a", metadata: [{ name: "a" }] };
    for (const actions of [["forget", "create"], ["create", "forget"], ["forget"]]) {
      const after = actions.length === 1 ? null : name;
      const text = plannedText([{ address: `${type}.a`, actions, before: name, after }]);
      const { verdict } = reviewOf([changeOfPlan({ fileName: "p", text, stack: "s" })]);
      expect(verdict.reasons.join()).toContain(forgotten);
    }
  },
);
