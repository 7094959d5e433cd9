import { expect, test } from "vitest";
import { requestedModel } from "../../contract/environment.ts";
import { fingerprintOf, preprocessingSha256 } from "../../contract/fingerprint.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { parseSettings } from "../../stacks/settings/settings.ts";
import { synth } from "../test-synth.ts";
import { ClusterInference } from "./cluster-inference.ts";
import type { ClusterModel } from "./cluster-plan.ts";
import { GpuCluster } from "./gpu-cluster.ts";

function synthInference(settings: string, model: ClusterModel, specs?: readonly ModelSpec[]) {
  const { cluster, nodePool, accelerator, ...props } = parseSettings(
    "kubernetes",
    "test",
    settings,
  );
  let inference: ClusterInference | undefined;
  const { only } = synth((stack) => {
    inference = new ClusterInference(stack, "inference", {
      ...props,
      cluster: new GpuCluster(stack, "cluster", { ...cluster, accelerator, pool: nodePool }),
      chart: "helm/clipstack",
      model,
      ...(specs !== undefined && { models: specs }),
    });
  });
  const values = JSON.parse(only("helm_release").values[0]);
  const services = (inference?.services ?? []).map(({ service }) => service);
  return { values, services, models: services.map((service) => requestedModel(service)) };
}

const name = "openclip_vit_b32_u8";
const modelKind = "u8";

test("serves the kind of the props with its own configuration", () => {
  const { values, models } = synthInference("", { modelKind, weights: "image" });
  expect(values.model).toEqual({ weights: "image" });
  expect(values.triton.modelKind).toBe("u8");
  expect(values.triton.modelConfig.texts[name]).toContain(`name: "${name}"`);
  expect(models).toEqual([name, name]);
});

test.each([
  "embed: { backend: onnxruntime, autoscaler: { maxReplicas: 4 } }\ntriton: { enabled: false }",
  "triton: { backend: tensorrt }",
])("fails on u8 files for servers that do not read them: %s", (settings) => {
  expect(() => synthInference(settings, { modelKind, weights: "image" })).toThrow(
    "model.modelKind must be fp32 unless embed.backend is triton and triton.backend is onnxruntime, got 'u8'",
  );
});

test("serves the shipped models by default", () => {
  const shipped = (settings: string) => synthInference(settings, { weights: "image" });
  expect(shipped("").values.model).toEqual({ weights: "image" });
  expect(shipped("").models).toEqual(["openclip_vit_b32", "openclip_vit_b32"]);
  const trt = "openclip_vit_b32_trt";
  expect(shipped("triton: { backend: tensorrt }").models).toEqual([trt, trt]);
});

/** Two image towers and two text towers, one with a tokenizer file. */
const models = "models: [openclip-vit-b32, { name: siglip2-base-224, modalities: [text] }]\n";
const large = "nodePool: { gpu: a100-sxm4-80gb }\n";
const sha256 = "0123456789abcdef".repeat(4);

test("serves every tower of several models with its own configuration", () => {
  const { values, services } = synthInference(`${models}${large}triton: { backend: tensorrt }`, {
    weights: "image",
  });
  expect(values.models).toEqual([
    "openclip-vit-b32",
    { name: "siglip2-base-224", modalities: ["text"] },
  ]);
  expect(values.model).toEqual({ weights: "image" });
  const { texts } = values.triton.modelConfig;
  const names = ["openclip_vit_b32_trt", "openclip_vit_b32_text_trt", "siglip2_base_224_text_trt"];
  expect(Object.keys(texts)).toEqual(names);
  for (const name of names) expect(texts[name]).toContain(`name: "${name}"`);
  // one engine for each tower
  expect(values.triton.startSeconds).toBe(120 + 3 * 300);
  expect(services).toMatchObject([
    { name: "embed", models: ["openclip-vit-b32", "siglip2-base-224"], modelKind: "trt" },
    { name: "triton", models: ["openclip-vit-b32", "siglip2-base-224"], modelKind: "trt" },
  ]);
});

test("passes specs that are not in the catalogue", () => {
  const own = { ...defaultModel, name: "own-model" };
  const { values } = synthInference("", { weights: "image" }, [own]);
  expect(values.models).toMatchObject([{ name: "own-model" }]);
  expect(values.models[0]).not.toHaveProperty("sources");
  expect(Object.keys(values.triton.modelConfig.texts)).toEqual(["own_model", "own_model_text"]);
});

test("mounts the file of each tower from its folder of a volume", () => {
  const { values } = synthInference(`${models}createNamespace: false`, {
    weights: "pvc",
    claim: "weights",
    towers: {
      "openclip-vit-b32:image": { folder: "clip", sha256 },
      "siglip2-base-224:text": { folder: "siglip" },
    },
  });
  expect(values.model).toEqual({
    weights: "pvc",
    pvc: { claimName: "weights" },
    towers: {
      openclip_vit_b32: { subPath: "clip", sha256 },
      openclip_vit_b32_text: { subPath: "openclip_vit_b32_text/1" },
      siglip2_base_224_text: { subPath: "siglip" },
    },
  });
});

test.each([
  ["onnxruntime", "", "fp32"],
  ["tensorrt", "_trt", "fp16"],
] as const)("states the fingerprint of verified weights with %s", (backend, suffix, precision) => {
  const triton = `triton: { backend: ${backend} }\ncreateNamespace: false`;
  const textOf = (model: ClusterModel) => {
    const { values } = synthInference(triton, model);
    return values.triton.modelConfig.texts[`openclip_vit_b32${suffix}`];
  };
  const own = fingerprintOf(preprocessingSha256(defaultModel, "image"), { sha256, precision });
  const url = "https://models.example/m";
  expect(textOf({ weights: "init", url, sha256 })).toContain(`"${own}"`);
  expect(textOf({ weights: "pvc", claim: "w", sha256 })).toContain(`"${own}"`);
  expect(textOf({ weights: "image", sha256 })).toContain(`"${own}"`);
  for (const model of [{ weights: "pvc", claim: "w" }, { weights: "image" }] as const) {
    expect(textOf(model)).not.toContain("fingerprint");
  }
});

test("passes the checksums of weights in the images, which only Triton pods verify", () => {
  const valuesOf = (settings: string, model: ClusterModel) =>
    synthInference(settings, model).values.model;
  expect(valuesOf("", { weights: "image", sha256 })).toEqual({ weights: "image", sha256 });
  const towers = { "siglip2-base-224:text": { sha256 } };
  expect(valuesOf(models, { weights: "image", towers })).toEqual({
    weights: "image",
    towers: { siglip2_base_224_text: { sha256 } },
  });
  const alone = "embed: { backend: onnxruntime }\ntriton: { enabled: false }";
  expect(() => synthInference(alone, { weights: "image", sha256 })).toThrow(
    "model.sha256 must be omitted when triton.enabled is false",
  );
});

test("downloads the file of each tower, and its tokenizer", () => {
  const file = (name: string) => ({ url: `https://models.example/${name}`, sha256 });
  const { values } = synthInference(models, {
    weights: "init",
    towers: {
      "openclip-vit-b32:image": file("clip.onnx"),
      "openclip-vit-b32:text": file("clip-text.onnx"),
      "siglip2-base-224:text": { ...file("siglip.onnx"), tokenizer: file("tokenizer.model") },
    },
  });
  expect(values.model).toEqual({
    weights: "init",
    // SigLIP's text tower has 1077 MiB
    init: { sizeLimit: "3Gi" },
    towers: {
      openclip_vit_b32: file("clip.onnx"),
      openclip_vit_b32_text: file("clip-text.onnx"),
      siglip2_base_224_text: { ...file("siglip.onnx"), tokenizer: file("tokenizer.model") },
    },
  });
});

test("passes further values to the chart", () => {
  const settings = `chartValues:
  commonLabels: { team: search }
  embed: { extraEnv: [{ name: TZ, value: UTC }], service: { externalTrafficPolicy: Local } }
  triton: { priorityClassName: inference, autoscaling: { fallbackReplicas: 3 } }`;
  const { values } = synthInference(settings, { weights: "image" });
  const { values: usual } = synthInference("", { weights: "image" });
  expect(values.commonLabels).toEqual({ team: "search" });
  expect(values.embed).toMatchObject({
    ...usual.embed,
    service: { type: "ClusterIP", externalTrafficPolicy: "Local" },
  });
  expect(values.triton.priorityClassName).toBe("inference");
  expect(values.triton.autoscaling).toEqual({ ...usual.triton.autoscaling, fallbackReplicas: 3 });
});

test("passes fractions to the chart, such as the SLO and the price of the alerts", () => {
  const prometheusRule = { latencySloSeconds: 0.5, usdPerHour: 3.2 };
  const settings = `chartValues: { prometheusRule: ${JSON.stringify(prometheusRule)} }`;
  const { values } = synthInference(settings, { weights: "image" });
  expect(values.prometheusRule).toEqual(prometheusRule);
});

test.each([
  ["", "http"],
  ["createNamespace: false\nembed: { tls: { secret: embed-tls } }", "https"],
])("the endpoint with the settings '%s' has the scheme %s", (settings, scheme) => {
  const { services } = synthInference(settings, { weights: "image" });
  expect(services[0]?.endpoints[0]?.url).toMatch(new RegExp(`^${scheme}://`));
});

test.each(
  Object.entries({
    "embed: { image: { repository: other } }":
      "chartValues.embed.image.repository must be absent: other settings determine it",
    "embed: { auth: { existingSecret: key } }":
      "chartValues.embed.auth must be absent: other settings determine it",
    "triton: { service: { type: NodePort } }":
      "chartValues.triton.service.type must be absent: other settings determine it",
    "triton: { gpus: 8 }": "chartValues.triton.gpus must be absent: other settings determine it",
    "triton: { priorityClass: high }":
      "chartValues.triton.priorityClass must be a value of the chart (helm/clipstack/README.md#values), got 'high'",
  }),
)("rejects the chart values %s", (chartValues, line) => {
  expect(() => synthInference(`chartValues: { ${chartValues} }`, { weights: "image" })).toThrow(
    line,
  );
});
