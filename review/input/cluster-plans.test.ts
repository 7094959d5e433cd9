import { describe, expect, test } from "vitest";
import { markdownComment } from "../report/comment-markdown.ts";
import { reviewOf } from "../review.ts";
import { findingsOfChange } from "../rules/findings.ts";
import { clusterPlanCases, savedChange } from "../test-plans.ts";

const today = "2026-11-22";

function reviewed(name: string) {
  const change = savedChange(name);
  return reviewOf([change], { findings: findingsOfChange(change, { waivers: [], today }) });
}

describe("the comment of a real plan of a cluster", () => {
  for (const { name } of clusterPlanCases) {
    test(`${name} is the one that was agreed on`, async () => {
      const text = markdownComment(reviewed(name));
      await expect(text).toMatchFileSnapshot(`./plans/${name}.review.md`);
    });
  }
});

test("what Kubernetes counts and an autoscaler scales is no change from outside", () => {
  const change = savedChange("kind-local-to-chart");
  expect(change.resources.length).toBeGreaterThan(10);
  expect(change.drift).toEqual([]);
});

test("a replaced object says which of its names forces it, and nothing that Kubernetes fills in", () => {
  const { changes } = reviewed("kind-local-replaced").stacks[0]!;
  const deployment = changes.find(({ title }) => title === "embed/deployment");
  expect(deployment?.forcedBy).toEqual(["metadata.namespace (clipstack-typed → clipstack-other)"]);
  expect(deployment?.diffs.flatMap(({ lines }) => lines)).toHaveLength(1);
});

test("the name of a release is no secret, and what Helm keeps of its values is never shown", () => {
  const text = markdownComment(reviewed("k8s-gpu-replaced"));
  expect(text).toContain("Every object of release clipstack is deleted");
  expect(text).not.toContain("(not shown)");
});

test("two Tritons are replaced one after the other, and one of them answers", () => {
  expect(reviewed("k8s-gpu-updated").verdict.reasons).toEqual([
    "k8s-gpu: Less capacity: fewer pods of embed (2 to 4 instead of 2 to 6).",
  ]);
});

test("the NodePort of a chart in a kind cluster is on this machine alone, as that of typed objects", () => {
  expect(reviewed("kind-local-to-chart").stacks[0]?.exposures).toEqual([]);
});
