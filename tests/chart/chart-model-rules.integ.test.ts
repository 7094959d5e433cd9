import { describe, expect, test } from "vitest";
import { modelCatalogue } from "../../contract/models/index.ts";
import { noHelm, rejectionOf, tryTemplate } from "./test-helm.ts";

/** Models, model configurations and weights that the chart rejects. */

const sha256 = "a".repeat(64);
const several = {
  models: [
    "openclip-vit-b32",
    { name: "dinov2-small", modalities: ["image"] },
    { name: "siglip2-base-224", modalities: ["text"] },
  ],
};
const triton = { enabled: true, image: { repository: "registry.example/triton" } };

const catalogue = [...modelCatalogue.keys()].sort().join(", ");

describe.skipIf(noHelm !== "")("chart with invalid models fails in one line", () => {
  test.each(
    Object.entries<object>({
      [`models.1 must be one of ${catalogue}, or the spec of a model with its name, got clip`]: {
        models: ["openclip-vit-b32", "clip"],
      },
      "models.0.modalities must be image, as dinov2-small has, got text": {
        models: [{ name: "dinov2-small", modalities: ["text"] }],
      },
      "models.1 must not repeat a model, got openclip-vit-b32": {
        models: ["openclip-vit-b32", { name: "openclip-vit-b32", modalities: ["text"] }],
      },
      "models.0.name must not be the name of a model in the catalogue, got dinov2-small": {
        models: [{ name: "dinov2-small", towers: {}, embedding: { width: 3 } }],
      },
      "triton.modelConfig.texts must have only the models that Triton serves (openclip_vit_b32), got resnet":
        { triton: { ...triton, modelConfig: { texts: { resnet: 'name: "resnet"' } } } },
      "triton.modelKind must be fp32 with triton.backend tensorrt, got u8": {
        triton: { ...triton, backend: "tensorrt", modelKind: "u8" },
      },
      "triton.modelKind must be fp32 with embed.backend onnxruntime and model.weights pvc: both servers execute the same files, got u8":
        {
          model: { weights: "pvc", pvc: { claimName: "w" } },
          triton: { ...triton, modelKind: "u8" },
        },
      "model.towers must have only towers of the models (openclip_vit_b32), got dinov2_small": {
        model: { towers: { dinov2_small: { sha256 } } },
      },
      "model.sha256 is the value of a single tower: with several, set model.towers.<tower>.sha256 for openclip_vit_b32, openclip_vit_b32_text, dinov2_small, siglip2_base_224_text":
        { ...several, model: { sha256 } },
      "model.sha256 must be empty with model.weights image and without Triton: the embed server computes its fingerprint from the file that it serves":
        { model: { sha256 } },
      "model.towers.openclip_vit_b32.url or model.init.existingSecret is required with model.weights init":
        { models: ["openclip-vit-b32"], model: { weights: "init" } },
      "model.towers.openclip_vit_b32.sha256 is required with model.weights init, to verify the download":
        {
          models: ["openclip-vit-b32"],
          model: { weights: "init", init: { existingSecret: "urls" } },
        },
      "model.towers.siglip2_base_224_text.tokenizer must have the url and sha256 of tokenizer.model with model.weights init":
        {
          models: [{ name: "siglip2-base-224", modalities: ["text"] }],
          model: { weights: "init", sha256, init: { url: "https://models.example/m" } },
        },
      "triton.modelConfig.texts.openclip_vit_b32_trt must not set precision_mode with triton.image.tag 26.06-py3: from Triton 26.06 on, TensorRT takes the precision from the graph":
        {
          model: { weights: "pvc", pvc: { claimName: "w" } },
          triton: {
            ...triton,
            image: { ...triton.image, tag: "26.06-py3" },
            backend: "tensorrt",
            modelConfig: {
              texts: { openclip_vit_b32_trt: 'name: "openclip_vit_b32_trt"\n# "precision_mode"' },
            },
          },
        },
      "model.towers.openclip_vit_b32_text.sha256 is required with triton.engineCache, so that engines of different weights are not reused":
        {
          models: ["openclip-vit-b32"],
          model: {
            weights: "pvc",
            pvc: { claimName: "w" },
            towers: { openclip_vit_b32: { sha256 } },
          },
          triton: { ...triton, backend: "tensorrt", engineCache: { enabled: true } },
        },
    }),
  )("%s", (message, values) => {
    expect(rejectionOf(values)).toBe(message);
  });

  test("on an empty list", () => {
    expect(tryTemplate({ models: [] }).stderr).toContain("at '/models'");
    const video = [{ name: "openclip-vit-b32", modalities: ["video"] }];
    expect(tryTemplate({ models: video }).stderr).toContain("at '/models/0'");
  });
});
