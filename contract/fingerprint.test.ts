import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import {
  canonicalJson,
  computesInFp16,
  configuredFingerprint,
  decodedFingerprint,
  fingerprintJson,
  fingerprintOf,
  parametersOf,
  preprocessingSha256,
} from "./fingerprint.ts";
import { imageTowerOf } from "./model-shapes.ts";
import type { ImageInput, ModelSpec } from "./model-spec.ts";
import { defaultModel } from "./models/index.ts";

const weights = { sha256: "a".repeat(64), precision: "fp32" } as const;
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

function imageFingerprint(input: Partial<ImageInput> = {}, spec: ModelSpec = defaultModel): string {
  const image = imageTowerOf(spec);
  const towers = { ...spec.towers, image: { ...image, input: { ...image.input, ...input } } };
  return fingerprintOf(preprocessingSha256({ ...spec, towers }, "image"), weights);
}

test("is the SHA-256 of the documented JSON", () => {
  const preprocessing = sha256(
    '{"channelOrder":"rgb","filter":"bicubic","mean":[0.48145466,0.4578275,0.40821073],"resize":{"edge":224,"mode":"shortest-edge"},' +
      '"rgbConversion":"after-resize","size":{"height":224,"width":224},"std":[0.26862954,0.26130258,0.27577711],"valueRange":"0..1"}',
  );
  expect(preprocessingSha256(defaultModel, "image")).toBe(preprocessing);
  const json = `{"precision":"fp32","preprocessing":"${preprocessing}","weights":"${weights.sha256}"}`;
  expect(fingerprintJson(preprocessing, weights)).toBe(json);
  expect(imageFingerprint()).toBe(sha256(json));
});

test("depends on the weights, the precision and every fact of the preprocessing", () => {
  const preprocessing = preprocessingSha256(defaultModel, "image");
  const fingerprints = [
    imageFingerprint(),
    fingerprintOf(preprocessing, { ...weights, sha256: "b".repeat(64) }),
    fingerprintOf(preprocessing, { ...weights, precision: "fp16" }),
    fingerprintOf(preprocessing, { ...weights, precision: "int8" }),
    fingerprintOf(preprocessingSha256(defaultModel, "text"), weights),
    imageFingerprint({ filter: "bilinear" }),
    imageFingerprint({ resize: { mode: "squash" } }),
    imageFingerprint({ rgbConversion: "before-resize" }),
    imageFingerprint({ channelOrder: "bgr" }),
    imageFingerprint({ mean: [0.5, 0.5, 0.5] }),
    decodedFingerprint(imageFingerprint(), "fast"),
    decodedFingerprint(imageFingerprint(), "dali"),
  ];
  expect(new Set(fingerprints).size).toBe(fingerprints.length);
});

test("does not depend on names, layouts and facts that change no embedding", () => {
  const renamed: ModelSpec = {
    ...defaultModel,
    name: "another",
    sources: {},
    batching: { maximum: 4, preferred: [] },
  };
  expect(imageFingerprint({ tensor: "pixel_values", layout: "nhwc" }, renamed)).toBe(
    imageFingerprint(),
  );
  expect(decodedFingerprint(imageFingerprint(), "exact")).toBe(imageFingerprint());
});

test("canonical JSON sorts the keys of nested objects and omits undefined ones", () => {
  expect(canonicalJson({ b: [{ d: 1, c: "é" }], a: undefined, A: null })).toBe(
    '{"A":null,"b":[{"c":"é","d":1}]}',
  );
});

test("is read from the parameters of a configuration", () => {
  const fingerprint = imageFingerprint();
  const preprocessing = preprocessingSha256(defaultModel, "image");
  const parameters = parametersOf(preprocessing, fingerprint);
  expect(configuredFingerprint({ parameters }, ["1"])).toBe(fingerprint);
  expect(configuredFingerprint({ parameters }, ["1", "2"])).toBeUndefined();
  expect(configuredFingerprint({}, ["1"])).toBeUndefined();
  const invalid = { ...parameters, fingerprint: { string_value: "x" } };
  expect(configuredFingerprint({ parameters: invalid }, ["1"])).toBeUndefined();
});

test("TensorRT's precision mode makes FP16 of an FP32 file", () => {
  const accelerator = { name: "tensorrt", parameters: { precision_mode: "FP16" } };
  const execution_accelerators = { gpu_execution_accelerator: [accelerator] };
  expect(computesInFp16({ optimization: { execution_accelerators } })).toBe(true);
  expect(computesInFp16({})).toBe(false);
});
