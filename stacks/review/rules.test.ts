import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { environmentNames } from "../settings.ts";
import { findingsOfChange } from "./findings.ts";
import { changeOfPlan } from "./plan-json.ts";
import { ruleIds, waiverIds } from "./rule-ids.ts";
import { constructOf } from "./rule-pages.ts";
import { rules } from "./rules.ts";
import { changeOf, inFormOfPlan } from "./test-stacks.ts";

test("there are at least 40 rules", () => {
  expect(rules.length).toBeGreaterThanOrEqual(40);
});

test("the list of ids that settings know is that of the rules", () => {
  expect(rules.map(({ id }) => id)).toEqual([...ruleIds]);
});

describe.each(rules.map((rule) => [rule.id, rule] as const))("%s", (_, rule) => {
  test("says of its failing example what its page says", () => {
    const [first] = rule.find(changeOf(rule.example, "failing"));
    expect(first?.what).toBe(rule.example.says);
  });

  test("finds nothing in its passing example", () => {
    expect(rule.find(changeOf(rule.example, "passing"))).toEqual([]);
  });

  test("finds the same in the form that a plan has", () => {
    const failing = changeOf(rule.example, "failing");
    const passing = changeOf(rule.example, "passing");
    expect(rule.find(inFormOfPlan(failing))).toEqual(rule.find(failing));
    expect(rule.find(inFormOfPlan(passing))).toEqual([]);
  });

  test("is waived for its example as its page says", () => {
    const address = constructOf(rule.example);
    const waiver = {
      rule: rule.id,
      reason: "one line, for whoever reads the review",
      expires: "2027-01-31",
      ...(address !== undefined && { address }),
    };
    const options = { waivers: [waiver], today: "2026-12-01" };
    const found = findingsOfChange(changeOf(rule.example, "failing"), options);
    expect(found.filter(({ waived }) => waived !== undefined)).not.toEqual([]);
    expect(found.filter(({ rule }) => rule === "waiver-unused")).toEqual([]);
  });

  test("says in one line what is wrong and how to fix it", () => {
    for (const { what, fix } of rule.find(changeOf(rule.example, "failing"))) {
      expect(what).toMatch(/^[^\n]{8,400}$/);
      expect(fix).toMatch(/^[^\n]{8,400}$/);
    }
  });
});

test("a renamed construct that is said to have moved is no finding", () => {
  const rename = rules.find(({ id }) => id === "renamed-resource");
  const [from = "", to = ""] =
    rename
      ?.find(changeOf(rename.example, "failing"))[0]
      ?.fix.match(/docker_volume\.[\w-]+/g)
      ?.map(String) ?? [];
  expect(from).not.toBe(to);
  const moved = { at: ["moved"], failing: [{ from, to }], passing: undefined };
  const edits = [...(rename?.example.edits ?? []), moved];
  expect(rename?.find(changeOf({ stack: "single-gpu", edits }, "failing"))).toEqual([]);
});

test("no finding has the secret that it is about", () => {
  const all = rules.flatMap((rule) => rule.find(changeOf(rule.example, "failing")));
  expect(JSON.stringify(rules.map(({ example }) => example))).toContain("planted-0000000000");
  expect(JSON.stringify(all)).not.toContain("planted-0000000000");
});

test.each(environmentNames)("finds nothing but notes in %s as it comes", (stack) => {
  const change = changeOf({ stack, edits: [] }, "passing");
  const found = rules
    .filter(({ severity }) => severity !== "note")
    .flatMap((rule) => rule.find(change).map(({ what }) => `${rule.id}: ${what}`));
  expect(found).toEqual([]);
});

test.each([
  ["single-gpu", "accelerator: cpu"],
  ["single-gpu", "embed: { engine: triton, expose: all-interfaces }"],
  ["single-gpu", "tritonOnnx: { modelControl: explicit, engine: bundled }"],
  ["single-gpu", "tritonTrt: { instancesPerGpu: 4, cudaGraphs: true }"],
  [
    "single-gpu",
    "weights: host-path\nhost: { docker: 'ssh://ops@gpu-1', gpu: b200 }\nmodelRepository: /srv/models",
  ],
  ["single-gpu", "state: { backend: s3, bucket: states, region: eu-central-1 }"],
  ["multi-gpu-4x", "topology: per-gpu\nperGpu: { backend: tensorrt }"],
  ["multi-gpu-4x", "accelerator: cpu"],
  ["kind-local", "deployWith: helm"],
  ["kind-local", "budget: { minAvailable: 1 }"],
  ["k8s-gpu", "accelerator: cpu"],
  ["k8s-gpu", "triton: { autoscaler: { minReplicas: 2, maxReplicas: 2 } }"],
  ["k8s-gpu", "createNamespace: false\nembed: { service: NodePort, keySecret: embed-key }"],
] as const)("finds nothing but notes in %s with the settings %j", (stack, settings) => {
  const change = changeOf({ stack, settings, edits: [] }, "passing");
  const found = rules
    .filter(({ severity }) => severity !== "note")
    .flatMap((rule) => rule.find(change).map(({ what }) => `${rule.id}: ${what}`));
  expect(found).toEqual([]);
});

test.each([
  ["create", []],
  ["kind-local-create", []],
  ["nothing-changed", []],
  ["queue-delay-changed", []],
  ["gpu-swapped", ["volume-lost"]],
  ["image-changed", ["volume-lost"]],
  ["port-exposed", ["endpoint-changed"]],
  ["stack-destroyed", ["environment-lost"]],
])("finds in the real plan %s what is worth a look, and nothing else", (plan, expected) => {
  const file = `stacks/review/plans/${plan}.plan.json`;
  const stack = plan.startsWith("kind-local") ? "kind-local" : "single-gpu";
  const change = changeOfPlan({ shown: file, text: readFileSync(file, "utf8"), stack });
  const found = rules
    .filter(({ severity }) => severity !== "note")
    .flatMap((rule) => rule.find(change).map(() => rule.id));
  expect(found).toEqual(expected);
});

test("every rule has a page, and no other page is there", () => {
  const pages = readdirSync("docs/rules").map((file) => file.replace(/\.md$/, ""));
  expect(pages.sort()).toEqual(["README", ...ruleIds, ...waiverIds].sort());
});
