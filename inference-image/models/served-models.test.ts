import { expect, test } from "vitest";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { dinov2Small } from "../../contract/models/dinov2-small.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import type { ImageEmbedder } from "./embedder.ts";
import { ServedModels } from "./served-models.ts";

function image(spec: ModelSpec, overrides: Partial<ImageEmbedder> = {}) {
  const embedder: ImageEmbedder = {
    embed: async (images) => images.map(() => new Float32Array(spec.embedding.width).fill(1)),
    announce: () => () => {},
    ready: async () => true,
    waitingItems: 0,
    close: async () => {},
    ...overrides,
  };
  return { spec, embedder };
}

function served(overrides: Partial<ImageEmbedder> = {}): ServedModels {
  const models = new ServedModels([dinov2Small, openclipVitB32]);
  models.load([
    { spec: dinov2Small, image: image(dinov2Small) },
    { spec: openclipVitB32, image: image(openclipVitB32, overrides) },
  ]);
  return models;
}

test("selects the first model, or the one with the name", () => {
  expect(served().image(undefined).spec).toBe(dinov2Small);
  expect(served().image("openclip-vit-b32").spec).toBe(openclipVitB32);
});

test("fails on a model that is not served, with the names of the others", () => {
  expect(() => served().image("ViT-B-32")).toThrow(
    expect.objectContaining({
      code: "unknown_model",
      status: 404,
      message: "model must be one of dinov2-small, openclip-vit-b32, got 'ViT-B-32'",
    }),
  );
});

test.each([
  ["dinov2-small", "dinov2-small embeds no texts"],
  [undefined, "this server embeds no texts"],
])("fails if the model %s has no tower for the modality", (name, message) => {
  expect(() => served().text(name)).toThrow(
    expect.objectContaining({ code: "unsupported_modality", status: 400, message }),
  );
});

test("knows its models while they are loading, but has no embedder", async () => {
  const models = new ServedModels([openclipVitB32]);
  expect(() => models.image("resnet")).toThrow(expect.objectContaining({ code: "unknown_model" }));
  expect(() => models.image(undefined)).toThrow(expect.objectContaining({ code: "unavailable" }));
  expect(await models.ready()).toBe(false);
});

test("is ready when all models are", async () => {
  expect(await served().ready()).toBe(true);
  const models = served({ ready: async () => false, unavailableReason: "no Triton server" });
  expect(await models.ready()).toBe(false);
  expect(models.unavailableReason).toBe("no Triton server");
});
