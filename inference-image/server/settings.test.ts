import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { defaultModel, defaultModels } from "../../contract/models/index.ts";
import { embedPort } from "../../contract/ports.ts";
import { readSettings } from "./settings.ts";

/** The default HOST is all interfaces. */
const anonymous = { ALLOW_ANONYMOUS: "true" };

test("returns the defaults without variables", () => {
  expect(readSettings(anonymous)).toMatchObject({
    HOST: "0.0.0.0",
    PORT: embedPort,
    BACKEND: "onnxruntime",
    MODELS: defaultModels,
    TRITON_MODEL_KIND: "fp32",
    TRITON_GRPC_URLS: [],
  });
});

test("parses numbers and lists and ignores other variables", () => {
  const settings = readSettings({
    ...anonymous,
    PORT: "9000",
    BACKEND: "triton",
    TRITON_GRPC_URLS: "a:8001, b:8011",
    PATH: "/bin",
  });
  expect(settings).toMatchObject({ PORT: 9000, TRITON_GRPC_URLS: ["a:8001", "b:8011"] });
  expect(settings).not.toHaveProperty("PATH");
});

test("reads hosts of image URLs as origins, https unless stated", () => {
  const hosts =
    "Images.example.com, https://cdn.example.com:443, http://10.0.0.7:9000, [2001:db8::1]";
  expect(readSettings({ ...anonymous, IMAGE_URL_HOSTS: hosts }).IMAGE_URL_HOSTS).toEqual([
    "https://images.example.com",
    "https://cdn.example.com",
    "http://10.0.0.7:9000",
    "https://[2001:db8::1]",
  ]);
});

test.each(["https://a/path", "https://user@a", "ftp://a", "*", "a:99999"])(
  "fails on IMAGE_URL_HOSTS '%s'",
  (host) => {
    expect(() => readSettings({ ...anonymous, IMAGE_URL_HOSTS: host })).toThrow(
      `IMAGE_URL_HOSTS must be host[:port], https://host[:port] or http://host[:port], got '${host}'`,
    );
  },
);

test("reads the list of models from MODELS_FILE, or from the model repository", () => {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-models-"));
  const file = join(folder, "models.json");
  writeFileSync(file, '["dinov2-small", { "name": "openclip-vit-b32", "modalities": ["text"] }]');
  for (const env of [{ MODELS_FILE: file }, { MODEL_REPOSITORY: folder }]) {
    const { MODELS } = readSettings({ ...anonymous, ...env });
    expect(MODELS.map(({ name, towers }) => [name, Object.keys(towers)])).toEqual([
      ["dinov2-small", ["image"]],
      ["openclip-vit-b32", ["text"]],
    ]);
  }
  const named = readSettings({ ...anonymous, MODEL_REPOSITORY: folder, MODELS: "dinov2-base" });
  expect(named.MODELS.map(({ name }) => name)).toEqual(["dinov2-base"]);
  writeFileSync(file, '["resnet"]');
  expect(() => readSettings({ ...anonymous, MODELS_FILE: file })).toThrow(
    `${file}: models.0 must be one of openclip-vit-b32, `,
  );
  rmSync(folder, { recursive: true });
});

test("treats an empty variable as unset", () => {
  expect(readSettings({ ...anonymous, PORT: "" }).PORT).toBe(embedPort);
});

test.each([
  [{ PORT: "0" }, "PORT must be a whole number, 1 to 65535, got '0'"],
  [{ PORT: "http" }, "PORT must be a whole number, 1 to 65535, got 'http'"],
  [{ MAX_BATCH_SIZE: "1.5" }, "MAX_BATCH_SIZE must be a whole number, 1 to 4096, got '1.5'"],
  [{ MODELS: "resnet" }, /^MODELS\.0 must be one of openclip-vit-b32, .*, got 'resnet'$/],
  [
    { MODELS: '[{ "name": "dinov2-small", "modalities": ["text"] }]' },
    "MODELS.0.modalities must be image, as dinov2-small has, got 'text'",
  ],
  [
    { MODELS: '["openclip-vit-b32", "openclip-vit-b32"]' },
    "MODELS.1 must not repeat a model, got 'openclip-vit-b32'",
  ],
  [{ MODELS: "a,b" }, "MODELS must be the name of a model or a list of models as JSON"],
  [{ MODELS: "[]" }, "MODELS must be the name of a model or a list of models as JSON"],
  [
    { MODELS: "[1]" },
    "MODELS.0 must be the name of a model, { name, modalities }, or a model spec",
  ],
  [{ MODELS: '[{ "towers": {} }]' }, "MODELS.0.name must be"],
  [
    { MODELS: JSON.stringify([{ ...defaultModel, embedding: { width: 0 } }]) },
    "MODELS.0.embedding.width must be 1 to 65536",
  ],
  [
    { MODELS: JSON.stringify([defaultModel]) },
    "MODELS.0.name must not be the name of a model in the catalogue",
  ],
  [
    { MODELS: "dinov2-small", MODELS_FILE: "models.json" },
    "MODELS and MODELS_FILE must not both be set, got 'models.json'",
  ],
  [{ MODELS_FILE: "/no/models.json" }, "MODELS_FILE /no/models.json does not exist"],
  [
    { TRITON_MODEL_KIND: "fp16" },
    "TRITON_MODEL_KIND must be one of fp32, trt, u8, jpeg, dali, dali-trt, got 'fp16'",
  ],
  [
    { LOG_LEVEL: "loud" },
    "LOG_LEVEL must be one of fatal, error, warn, info, debug, trace, silent, got 'loud'",
  ],
  [{ BACKEND: "torch" }, "BACKEND must be one of onnxruntime, triton, got 'torch'"],
  [
    { TRITON_GRPC_URLS: "http://a" },
    "TRITON_GRPC_URLS must be host:port[,host:port…], got 'http://a'",
  ],
  [
    { MAX_IMAGE_PIXELS: "1000", MAX_PIXELS_IN_FLIGHT: "999" },
    "MAX_PIXELS_IN_FLIGHT must be 0 or at least MAX_IMAGE_PIXELS, got '999'",
  ],
  [
    { DECODE_TIMEOUT_MS: "99" },
    "DECODE_TIMEOUT_MS must be a whole number, 100 to 600000, got '99'",
  ],
  [{ BACKEND: "triton" }, "TRITON_GRPC_URLS is required when BACKEND is triton"],
  [
    {},
    "API_KEY or API_KEYS_FILE is required unless HOST is a loopback address (or set ALLOW_ANONYMOUS=true if the network restricts access), got HOST '0.0.0.0'",
  ],
  [{ API_KEY: "short" }, "API_KEY must be at least 16 printable ASCII characters without spaces"],
  [
    { API_KEY: "0123456789abcdef", API_KEYS_FILE: "keys.json" },
    "API_KEY must not be set beside API_KEYS_FILE",
  ],
  [
    { MODEL_PRECISION: "int8", EXECUTION_PROVIDER: "cuda" },
    "MODEL_PRECISION int8 requires EXECUTION_PROVIDER cpu, got 'cuda'",
  ],
  [{ HOST: "::1", TLS_CERT_FILE: "a.pem" }, "TLS_KEY_FILE is required when TLS_CERT_FILE is set"],
  [{ HOST: "::1", TLS_KEY_FILE: "a.pem" }, "TLS_CERT_FILE is required when TLS_KEY_FILE is set"],
  [
    { HOST: "::1", TRITON_TLS_CA_FILE: "ca.pem", TRITON_TLS_CERT_FILE: "a.pem" },
    "TRITON_TLS_KEY_FILE is required when TRITON_TLS_CERT_FILE is set",
  ],
  [
    { HOST: "::1", TRITON_TLS_SERVER_NAME: "triton" },
    "TRITON_TLS_CA_FILE is required when TRITON_TLS_SERVER_NAME is set",
  ],
  [
    { HOST: "::1", TRITON_TLS_SERVER_NAME: "triton:8001" },
    "TRITON_TLS_SERVER_NAME must be a host name, got 'triton:8001'",
  ],
])("fails on %o", (env, message) => {
  expect(() => readSettings(env)).toThrow(message);
});

test("reports all invalid settings at once, one line each", () => {
  const env = { PORT: "x", LOG_LEVEL: "y", MAX_QUEUE_SIZE: "0", BACKEND: "triton" };
  expect(() => readSettings(env)).toThrow(
    [
      "PORT must be a whole number, 1 to 65535, got 'x'",
      "LOG_LEVEL must be one of fatal, error, warn, info, debug, trace, silent, got 'y'",
      "MAX_QUEUE_SIZE must be a whole number, 1 to 1000000, got '0'",
      "TRITON_GRPC_URLS is required when BACKEND is triton",
    ].join("\n"),
  );
});

test("never prints a key", () => {
  expect(() => readSettings({ API_KEY: "hunter2" })).not.toThrow("hunter2");
});

test.each(["127.0.0.1", "127.1.2.3", "localhost", "::1"])("requires no key on %s", (HOST) => {
  expect(readSettings({ HOST }).API_KEY).toBeUndefined();
});

test("does not require ALLOW_ANONYMOUS with a key", () => {
  expect(readSettings({ API_KEY: "0123456789abcdef" }).HOST).toBe("0.0.0.0");
});
