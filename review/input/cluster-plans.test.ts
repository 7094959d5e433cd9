import { describe, expect, test } from "vitest";
import { markdownComment } from "../report/comment-markdown.ts";
import { reviewOf } from "../review.ts";
import { findingsOfChange } from "../rules/findings.ts";
import { clusterPlanCases, savedChange } from "../test-plans.ts";
import { synthesizedText } from "../test-stacks.ts";

const today = "2026-11-22";

function reviewed(name: string) {
  const change = savedChange(name);
  return reviewOf([change], { findings: findingsOfChange(change, { waivers: [], today }) });
}

describe("the comment for a saved plan of a cluster", () => {
  for (const { name } of clusterPlanCases) {
    test(`${name} equals the snapshot`, async () => {
      const text = markdownComment(reviewed(name));
      await expect(text).toMatchFileSnapshot(`./plans/${name}.review.md`);
    });
  }
});

test("the saved plans have the objects that kind-local declares", () => {
  const { resource } = JSON.parse(synthesizedText("kind-local"));
  const declared = Object.keys(resource)
    .filter((type) => type.startsWith("kubernetes_"))
    .flatMap((type) => Object.keys(resource[type]).map((id) => `${type}.${id}`))
    // the test cluster of the saved plans has one
    .filter((address) => !address.includes(".metrics-server"));
  const planned = savedChange("kind-local-destroyed").resources.map(({ address }) => address);
  expect(planned.filter((address) => address.startsWith("kubernetes_"))).toEqual(declared.sort());
});

test("fields maintained by Kubernetes and an autoscaler are not drift", () => {
  const change = savedChange("kind-local-to-chart");
  expect(change.resources.length).toBeGreaterThan(10);
  expect(change.drift).toEqual([]);
});

test("a replaced object lists the name that forces it, but no defaults of Kubernetes", () => {
  const { changes } = reviewed("kind-local-replaced").stacks[0]!;
  const deployment = changes.find(({ title }) => title === "embed/deployment");
  expect(deployment?.forcedBy).toEqual(["metadata.namespace (clipstack-typed → clipstack-other)"]);
  expect(deployment?.diffs.flatMap(({ lines }) => lines)).toHaveLength(1);
});

test("prints the name of a release, but not its metadata", () => {
  const text = markdownComment(reviewed("k8s-gpu-replaced"));
  expect(text).toContain("Every object of release clipstack is deleted");
  expect(text).not.toContain("(not shown)");
});

test("two Triton servers are replaced one after the other without an outage", () => {
  expect(reviewed("k8s-gpu-updated").verdict.reasons).toEqual([
    "k8s-gpu: Less capacity: fewer pods of embed (2 to 4 instead of 2 to 6).",
  ]);
});

test("the NodePort of a chart in a kind cluster is on the loopback interface, like that of typed objects", () => {
  expect(reviewed("kind-local-to-chart").stacks[0]?.exposures).toEqual([]);
});
