import { expect, test } from "vitest";
import { changeOf } from "../test-stacks.ts";
import { stackNotes } from "./plan-notes.ts";

const notesOf = (settings: string) =>
  stackNotes(changeOf({ stack: "single-gpu", settings, edits: [] }, "passing"));

test("names the models of which an environment accepts random weights", () => {
  expect(notesOf("models: [openclip-vit-b32]\nallowRandomWeights: true")).toContainEqual(
    "single-gpu accepts random weights, which make embeddings meaningless (allowRandomWeights), of openclip_vit_b32, openclip_vit_b32_text.",
  );
  expect(notesOf("")).toEqual([]);
});
