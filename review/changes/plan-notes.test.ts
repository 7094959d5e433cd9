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
