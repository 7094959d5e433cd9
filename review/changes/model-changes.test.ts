import { expect, test } from "vitest";
import { changeOfDocuments } from "../input/document-change.ts";
import { parseDocument } from "../input/synthesized-document.ts";
import { synthesizedText } from "../test-stacks.ts";
import { modelNotes } from "./model-changes.ts";

type Environment = Record<string, unknown> & { models: { weights: { revision?: string } }[] };

/** Notes of a change of `models:` in single-gpu. */
function notesOf(
  before: string,
  after: string,
  edit: (environment: Environment) => void = () => {},
) {
  const documentOf = (models: string) => {
    const json = JSON.parse(synthesizedText("single-gpu", `models: [${models}]`));
    return json as { output: { environment: { value: Environment } } };
  };
  const edited = documentOf(after);
  edit(edited.output.environment.value);
  const [from, to] = [documentOf(before), edited].map((document) =>
    parseDocument(JSON.stringify(document), "single-gpu"),
  );
  const change = changeOfDocuments("single-gpu", from!, to!);
  return modelNotes(change, (_environment, gpusOf) => ({
    imagesPerSecond: 100 * (gpusOf([]) ?? 0),
    source: "test",
  }));
}

test("an added model has memory, cost of an item, width, licence and predicted throughput", () => {
  expect(notesOf("openclip-vit-b32", "openclip-vit-b32, dinov2-small")).toEqual([
    "Model dinov2-small is added: 3.0 GB of GPU memory in 3 services; embeds images (12.248 GFLOPs each); 384 values per embedding; weights: Apache-2.0; predicted 100 images/s if it alone is used, $5.56 per million.",
  ]);
});

test("a removed model frees memory", () => {
  expect(notesOf("openclip-vit-b32, dinov2-small", "openclip-vit-b32")).toEqual([
    "Model dinov2-small is removed: 3.0 GB of GPU memory in 3 services becomes free; requests that name it are rejected.",
  ]);
});

const imagesOnly = "{ name: openclip-vit-b32, modalities: [image] }";

test("an added tower has its memory and leaves stored embeddings comparable", () => {
  expect(notesOf(imagesOnly, "openclip-vit-b32")).toEqual([
    "The text tower of openclip-vit-b32 is added: 1.3 GB of GPU memory in 3 services; embeds texts (5.96 GFLOPs each).",
  ]);
});

test("a removed tower frees its memory and leaves stored embeddings comparable", () => {
  expect(notesOf("openclip-vit-b32", imagesOnly)).toEqual([
    "The text tower of openclip-vit-b32 is removed: 1.3 GB of GPU memory in 3 services becomes free; its texts are rejected.",
  ]);
});

test("another default model is stated for the embed service", () => {
  expect(notesOf("openclip-vit-b32, dinov2-small", "dinov2-small, openclip-vit-b32")).toEqual([
    "Requests to embed without a model get embeddings of dinov2-small instead of openclip-vit-b32.",
  ]);
});

test("changed weights make stored embeddings incomparable", () => {
  const notes = notesOf("openclip-vit-b32", "openclip-vit-b32", ({ models }) => {
    models[0]!.weights.revision = "another";
  });
  expect(notes).toEqual([
    "Model openclip-vit-b32 is changed: weights.revision. Its embeddings before and after the change cannot be compared: recompute stored ones.",
  ]);
});

test("the same models have no notes", () => {
  expect(notesOf("openclip-vit-b32", "openclip-vit-b32")).toEqual([]);
});
