import { expect, test } from "vitest";
import { catalogueSpecs } from "./models/index.ts";
import { openclipVitB32 } from "./models/openclip-vit-b32.ts";
import { siglip2Base224 } from "./models/siglip2-base-224.ts";
import { kindsOf, modelKinds, tritonModel, tritonModelName } from "./triton-models.ts";

test.each([
  ["fp32", "openclip_vit_b32", "onnxruntime_onnx", "FP32", [3, 224, 224]],
  ["trt", "openclip_vit_b32_trt", "onnxruntime_onnx", "FP32", [3, 224, 224]],
  ["u8", "openclip_vit_b32_u8", "onnxruntime_onnx", "UINT8", [224, 224, 3]],
  ["jpeg", "openclip_vit_b32_jpeg", "ensemble", "BYTES", [1]],
] as const)("%s of ViT-B/32 keeps its name and tensors", (modelKind, ...expected) => {
  const [name, platform, dataType, dims] = expected;
  expect(tritonModel(openclipVitB32, modelKind)).toEqual({
    name,
    platform,
    inputs: [{ name: "image", dataType, dims }],
    outputs: [{ name: "embedding", dataType: "FP32", dims: [512] }],
    maxBatchSize: 32,
    preferredBatchSizes: [],
    maxQueueDelayMicroseconds: 0,
  });
});

test("preprocess of ViT-B/32 keeps its name and tensors", () => {
  expect(tritonModel(openclipVitB32, "preprocess")).toEqual({
    name: "openclip_vit_b32_preprocess",
    platform: "python",
    inputs: [{ name: "encoded", dataType: "BYTES", dims: [1] }],
    outputs: [{ name: "pixels", dataType: "UINT8", dims: [224, 224, 3] }],
    maxBatchSize: 32,
    preferredBatchSizes: [],
    maxQueueDelayMicroseconds: 0,
  });
});

test("a text tower takes token ids", () => {
  expect(tritonModel(openclipVitB32, "text")).toMatchObject({
    name: "openclip_vit_b32_text",
    inputs: [{ name: "text", dataType: "INT64", dims: [77] }],
    outputs: [{ name: "embedding", dataType: "FP32", dims: [512] }],
  });
  expect(tritonModelName(siglip2Base224, "text-trt")).toBe("siglip2_base_224_text_trt");
});

test("a model has the kinds of its towers", () => {
  expect(kindsOf(openclipVitB32)).toEqual(modelKinds);
  const { image } = openclipVitB32.towers;
  const imagesOnly = { ...openclipVitB32, towers: { image } };
  expect(kindsOf(imagesOnly)).toEqual(["fp32", "trt", "u8", "preprocess", "jpeg"]);
  expect(() => tritonModel(imagesOnly, "text")).toThrow("openclip-vit-b32: has no text tower");
});

test("no two models of the catalogue share a name", () => {
  const names = catalogueSpecs.flatMap((spec) =>
    modelKinds.map((modelKind) => tritonModelName(spec, modelKind)),
  );
  expect(new Set(names).size).toBe(names.length);
});
