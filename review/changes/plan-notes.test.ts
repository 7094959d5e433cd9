import { expect, test } from "vitest";
import { changeOf } from "../test-stacks.ts";
import { comparisonOf } from "./impact-kinds.ts";
import { stackNotes } from "./plan-notes.ts";

const notesOf = (settings: string) => {
  const change = changeOf({ stack: "single-gpu", settings, edits: [] }, "passing");
  return stackNotes(change, comparisonOf(change));
};

test("names the models of which an environment accepts random weights", () => {
  expect(notesOf("models: [openclip-vit-b32]\nallowRandomWeights: true")).toContainEqual(
    "single-gpu accepts random weights, which make embeddings meaningless (allowRandomWeights), of openclip_vit_b32, openclip_vit_b32_text.",
  );
  expect(notesOf("")).toEqual([]);
});

test.each(["create", "update"] as const)(
  "states the maximum cost of a run of a bulk job, at %s",
  (action) => {
    const bulk =
      "{ enabled: true, job: s3://vectors/job, workers: 8, maxHours: 6, usdPerWorkerHour: 0.35 }";
    const settings = `chartValues: { bulk: ${bulk} }`;
    const change = changeOf({ stack: "k8s-gpu", settings, edits: [] }, "passing");
    const changed = { ...change, resources: change.resources.map((it) => ({ ...it, action })) };
    expect(stackNotes(changed, comparisonOf(changed))).toEqual([
      "A run of the bulk job costs at most 16.80 $: 8 pods × 6 h × 0.35 $ per hour, then it is stopped and can be resumed.",
      ...(action === "update"
        ? [
            "Another specification is another Job: a running one is deleted, and the new one repeats only the shards in work.",
          ]
        : []),
    ]);
  },
);
