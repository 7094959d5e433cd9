import { expect, test } from "vitest";
import { clientOptionsFromEnv } from "./client-env.ts";

test("defaults to the embed API with mode auto", () => {
  expect(clientOptionsFromEnv({ INFERENCE_MODE: "" })).toEqual({
    backend: "embed",
    mode: "auto",
    serviceUrl: undefined,
    apiKey: undefined,
    tritonGrpcUrl: undefined,
    model: undefined,
    tritonModel: undefined,
    modelPath: undefined,
    textModelPath: undefined,
    vocabularyPath: undefined,
  });
});

test("reads every variable", () => {
  expect(
    clientOptionsFromEnv({
      INFERENCE_BACKEND: "triton_grpc",
      INFERENCE_MODE: "remote",
      INFERENCE_SERVICE_URL: "http://gpu-host:8010",
      INFERENCE_API_KEY: "0123456789abcdef",
      TRITON_GRPC_URL: "gpu-host:9000",
      TRITON_MODEL: "openclip_vit_b32_jpeg",
      INFERENCE_MODEL: "openclip-vit-b32",
      INFERENCE_MODEL_PATH: "model.onnx",
      INFERENCE_TEXT_MODEL_PATH: "text.onnx",
      INFERENCE_VOCABULARY_PATH: "tokenizer.model",
    }),
  ).toEqual({
    backend: "triton_grpc",
    mode: "remote",
    serviceUrl: "http://gpu-host:8010",
    apiKey: "0123456789abcdef",
    tritonGrpcUrl: "gpu-host:9000",
    model: "openclip-vit-b32",
    tritonModel: "openclip_vit_b32_jpeg",
    modelPath: "model.onnx",
    textModelPath: "text.onnx",
    vocabularyPath: "tokenizer.model",
  });
});

test("accepts pytorch as the old name of embed", () => {
  expect(clientOptionsFromEnv({ INFERENCE_BACKEND: "pytorch" }).backend).toBe("embed");
});

test.each([
  [
    { INFERENCE_BACKEND: "tensorflow" },
    "INFERENCE_BACKEND must be embed, triton or triton_grpc, got 'tensorflow'",
  ],
  [{ INFERENCE_MODE: "cloud" }, "INFERENCE_MODE must be local, remote or auto, got 'cloud'"],
  [
    { INFERENCE_SERVICE_URL: "gpu-host:8010" },
    "INFERENCE_SERVICE_URL must be http://host:port, without a path, got 'gpu-host:8010'",
  ],
  [
    { TRITON_GRPC_URL: "http://gpu-host:8011" },
    "TRITON_GRPC_URL must be host:port, got 'http://gpu-host:8011'",
  ],
  [
    { INFERENCE_MODE: "x", TRITON_GRPC_URL: "y" },
    "INFERENCE_MODE must be local, remote or auto, got 'x'; TRITON_GRPC_URL must be host:port, got 'y'",
  ],
])("fails with one line on %j", (env, message) => {
  expect(() => clientOptionsFromEnv(env)).toThrow(`[settings] ${message}`);
});
