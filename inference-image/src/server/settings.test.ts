import { expect, test } from "vitest";
import { openclipVitB32 } from "../contract/model-signature.ts";
import { embedPort } from "../contract/ports.ts";
import { readSettings } from "./settings.ts";

test("without variables, gives the defaults", () => {
  expect(readSettings({})).toMatchObject({
    HOST: "0.0.0.0",
    PORT: embedPort,
    ENGINE: "onnx",
    MAX_BATCH_SIZE: openclipVitB32.maxBatchSize,
    TRITON_GRPC_URLS: [],
  });
});

test("reads numbers and lists, and leaves other variables alone", () => {
  const settings = readSettings({
    PORT: "9000",
    ENGINE: "triton",
    TRITON_GRPC_URLS: "a:8001, b:8011",
    PATH: "/bin",
  });
  expect(settings).toMatchObject({ PORT: 9000, TRITON_GRPC_URLS: ["a:8001", "b:8011"] });
  expect(settings).not.toHaveProperty("PATH");
});

test("takes an empty variable as one that is not set", () => {
  expect(readSettings({ PORT: "" }).PORT).toBe(embedPort);
});

test.each([
  [{ PORT: "0" }, "PORT must be a whole number, 1 to 65535, got '0'"],
  [{ PORT: "http" }, "PORT must be a whole number, 1 to 65535, got 'http'"],
  [{ MAX_BATCH_SIZE: "1.5" }, "MAX_BATCH_SIZE must be a whole number, 1 to 1024, got '1.5'"],
  [
    { LOG_LEVEL: "loud" },
    "LOG_LEVEL must be one of fatal, error, warn, info, debug, trace, silent, got 'loud'",
  ],
  [{ ENGINE: "torch" }, "ENGINE must be one of onnx, triton, got 'torch'"],
  [
    { TRITON_GRPC_URLS: "http://a" },
    "TRITON_GRPC_URLS must be host:port[,host:port…], got 'http://a'",
  ],
  [{ ENGINE: "triton" }, "TRITON_GRPC_URLS is required when ENGINE is triton"],
])("fails on %o", (env, message) => {
  expect(() => readSettings(env)).toThrow(message);
});

test("fails with all mistakes at once, a line each", () => {
  const env = { PORT: "x", LOG_LEVEL: "y", MAX_QUEUE_SIZE: "0", ENGINE: "triton" };
  expect(() => readSettings(env)).toThrow(
    [
      "PORT must be a whole number, 1 to 65535, got 'x'",
      "LOG_LEVEL must be one of fatal, error, warn, info, debug, trace, silent, got 'y'",
      "MAX_QUEUE_SIZE must be a whole number, 1 to 1000000, got '0'",
      "TRITON_GRPC_URLS is required when ENGINE is triton",
    ].join("\n"),
  );
});
