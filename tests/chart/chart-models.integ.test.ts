import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { readModelConfig } from "../../client/triton/model-config.ts";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";
import { chartModels } from "../../constructs/kubernetes/chart-values-for.ts";
import { deployedModelConfig } from "../../contract/deployed-model-config.ts";
import {
  configuredFingerprint,
  fingerprintOf,
  preprocessingSha256,
} from "../../contract/fingerprint.ts";
import { checkModelConfig } from "../../contract/model-config-check.ts";
import { modelSpec } from "../../contract/model-spec.ts";
import { catalogueSpecs, defaultModel, modelCatalogue } from "../../contract/models/index.ts";
import { modelsFile, servedModels } from "../../contract/server/model-list.ts";
import { parseTritonArgs } from "../../contract/triton-flags.ts";
import { readCheckWeightsArguments } from "../../inference-image/jobs/check-weights.ts";
import { readFetchWeightsArguments } from "../../inference-image/jobs/fetch-weights.ts";
import {
  chart,
  noHelm,
  objectOf,
  rejectionOf,
  type TestObject,
  template,
  tryTemplate,
} from "./test-helm.ts";

/** The chart with several models, and with models outside the catalogue. */

const sha256 = "a".repeat(64);

/** Two image towers and two text towers, one with a tokenizer file. */
const models: NonNullable<ChartValues["models"]> = [
  "openclip-vit-b32",
  { name: "dinov2-small", modalities: ["image"] },
  { name: "siglip2-base-224", modalities: ["text"] },
];
const several: ChartValues = { models };
const triton = {
  enabled: true,
  image: { repository: "registry.example/triton" },
} as const satisfies ChartValues["triton"];
const gateway: ChartValues = { models, embed: { backend: "triton" }, triton };

const file = (name: string) => ({ url: `https://models.example/${name}`, sha256 });
const downloaded: ChartValues["model"] = {
  weights: "init",
  towers: {
    openclip_vit_b32: file("clip.onnx"),
    openclip_vit_b32_text: file("clip-text.onnx"),
    dinov2_small: { url: "http://models.example:8080/dinov2.onnx", sha256 },
    siglip2_base_224_text: { ...file("siglip.onnx"), tokenizer: file("tokenizer.model") },
  },
};

const podIn = (objects: readonly TestObject[], component: "embed" | "triton") =>
  objectOf(objects, "Deployment", `clipstack-${component}`).spec.template.spec;
const podOf = (values: ChartValues, component: "embed" | "triton") =>
  podIn(template(values), component);
const envIn = (objects: readonly TestObject[]): Record<string, string> =>
  Object.fromEntries(
    podIn(objects, "embed").containers[0].env.map((it: { name: string; value?: string }) => [
      it.name,
      it.value ?? "",
    ]),
  );
const tritonArgs = (values: ChartValues) =>
  parseTritonArgs((podOf(values, "triton").containers[0].args as string[]).slice(1));

/** Models in the list that the embed server reads. */
const servedIn = (values: ChartValues) => {
  const objects = template(values);
  const { name, items } = podIn(objects, "embed").volumes.find(
    (volume: { name: string }) => volume.name === "models",
  ).configMap;
  expect(items).toBeUndefined();
  expect(envIn(objects).MODELS_FILE).toBe(modelsFile);
  const { data } = objectOf(objects, "ConfigMap", name) as unknown as {
    readonly data: Record<string, string>;
  };
  return servedModels.parse(data["models.json"]);
};

/** Model configurations by name of the ConfigMap. */
const configsIn = (objects: readonly TestObject[]) =>
  objects
    .filter(({ kind, metadata: { name } }) => kind === "ConfigMap" && !name.endsWith("-models"))
    .map(({ metadata, data }) => {
      const [[path, text]] = Object.entries(data) as [[string, string]];
      return { name: metadata.name, path, config: readModelConfig(text, path) };
    });

interface Mount {
  readonly name: string;
  readonly mountPath: string;
  readonly subPath?: string;
}
const mountsOf = (pod: { readonly containers: readonly { volumeMounts: readonly Mount[] }[] }) =>
  (pod.containers[0]?.volumeMounts ?? [])
    .filter(({ name }) => name.startsWith("weights"))
    .map(({ name, mountPath, subPath }) => [name, mountPath, subPath ?? ""]);

/** Spec outside the catalogue, and its values. */
const own = modelSpec.parse({
  ...defaultModel,
  name: "own-model",
  embedding: { ...defaultModel.embedding, width: 320 },
  sources: {},
});
const ownTexts = Object.fromEntries(
  (["fp32", "text"] as const).map((modelKind) => {
    const { config, text } = deployedModelConfig({ spec: own, modelKind }, 1);
    return [config.name, text];
  }),
);

describe.skipIf(noHelm !== "")(`chart with several models${noHelm && ` (${noHelm})`}`, () => {
  test("passes the models to the embed server", () => {
    expect(servedIn(several).map(({ name, towers }) => [name, Object.keys(towers)])).toEqual([
      ["openclip-vit-b32", ["image", "text"]],
      ["dinov2-small", ["image"]],
      ["siglip2-base-224", ["text"]],
    ]);
  });

  test.each([
    ["onnxruntime", "fp32", "fp32"],
    ["tensorrt", "trt", "fp16"],
  ] as const)(
    "states the fingerprint of verified weights with %s",
    (backend, modelKind, precision) => {
      const fingerprints = (model: ChartValues["model"]) =>
        configsIn(template({ ...gateway, model, triton: { ...triton, backend } })).map(
          ({ config }) => configuredFingerprint(config, ["1"]),
        );
      const towers = [
        [defaultModel, "image"],
        [defaultModel, "text"],
        [modelCatalogue.get("dinov2-small")!, "image"],
        [modelCatalogue.get("siglip2-base-224")!, "text"],
      ] as const;
      expect(fingerprints(downloaded)).toEqual(
        towers.map(([spec, modality]) =>
          fingerprintOf(preprocessingSha256(spec, modality), { sha256, precision }),
        ),
      );
      // as the constructs, which render the complete configuration
      const { config } = deployedModelConfig(
        { spec: defaultModel, modelKind },
        1,
        {},
        { weightsSha256: sha256 },
      );
      expect(configuredFingerprint(config, ["1"])).toBe(fingerprints(downloaded)[0]);
      const verified = { openclip_vit_b32: { sha256 } };
      const onVolume = { weights: "pvc", pvc: { claimName: "w" }, towers: verified } as const;
      expect(fingerprints(onVolume)).toEqual([expect.any(String), undefined, undefined, undefined]);
      const inImage = { weights: "image", towers: verified } as const;
      expect(fingerprints(inImage)).toEqual(fingerprints(onVolume));
    },
  );

  test.each([
    ["onnxruntime", ""],
    ["tensorrt", "_trt"],
  ] as const)("has a configuration of each tower in Triton with %s", (backend, suffix) => {
    const values: ChartValues = { ...gateway, triton: { ...triton, backend } };
    const names = [
      "openclip_vit_b32",
      "openclip_vit_b32_text",
      "dinov2_small",
      "siglip2_base_224_text",
    ].map((name) => `${name}${suffix}`);
    const objects = template(values);
    const found = configsIn(objects);
    expect(found.map(({ name, path, config }) => [name, path, config.name])).toEqual([
      ["clipstack-triton", "deployed.pbtxt", names[0]],
      ["clipstack-triton-openclip-vit-b32-text", "deployed.pbtxt", names[1]],
      ["clipstack-triton-dinov2-small", "deployed.pbtxt", names[2]],
      ["clipstack-triton-siglip2-base-224-text", "deployed.pbtxt", names[3]],
    ]);
    for (const { config } of found)
      expect(checkModelConfig(config, { specs: catalogueSpecs })).toEqual([]);
    expect(tritonArgs(values)["load-model"]).toEqual(names);
    const { containers, volumes } = podIn(objects, "triton");
    const isConfig = ({ name }: { name: string }) => name.startsWith("model-config");
    expect(containers[0].volumeMounts.filter(isConfig).map((it: Mount) => it.mountPath)).toEqual(
      names.map((name) => `/models/${name}/configs`),
    );
    expect(
      volumes.filter(isConfig).map((it: { configMap: { name: string } }) => it.configMap.name),
    ).toEqual(found.map(({ name }) => name));
    expect(envIn(objects).TRITON_MODEL_KIND).toBe(suffix === "" ? "fp32" : "trt");
  });

  test("has the configurations of every model of the catalogue", () => {
    for (const modelKind of ["fp32", "u8"] as const) {
      const names = configsIn(
        template({ models: [...modelCatalogue.keys()], triton: { ...triton, modelKind, gpus: 4 } }),
      ).map(({ config }) => config.name);
      const towers = catalogueSpecs.flatMap((it) => Object.keys(it.towers));
      expect(names).toHaveLength(towers.length);
      expect(names).toContain(modelKind === "u8" ? "dinov2_base_u8" : "dinov2_base");
      expect(names).toContain("mobileclip2_s0_text");
    }
  });

  test("allows time for an engine of each tower on each GPU", () => {
    const values: ChartValues = { ...gateway, triton: { ...triton, backend: "tensorrt", gpus: 4 } };
    const { startupProbe } = podOf(values, "triton").containers[0];
    expect(startupProbe.periodSeconds * startupProbe.failureThreshold).toBe(120 + 4 * 4 * 300);
  });

  test("replaces the pods of Triton if the configuration of any tower changes", () => {
    const checksum = (texts: Record<string, string>) =>
      objectOf(
        template({ ...gateway, triton: { ...triton, modelConfig: { texts } } }),
        "Deployment",
        "clipstack-triton",
      ).spec.template.metadata.annotations["checksum/model-config"];
    expect(checksum({ dinov2_small: 'name: "dinov2_small"\n' })).not.toBe(checksum({}));
  });

  test("tests each tower of the release", () => {
    const { spec } = objectOf(template(several), "Pod", "clipstack-embed-test");
    const { value } = spec.containers[0].env.find((it: Mount) => it.name === "TOWERS");
    expect(JSON.parse(value)).toEqual([
      { model: "openclip-vit-b32", modality: "image", width: 512 },
      { model: "openclip-vit-b32", modality: "text", width: 512 },
      { model: "dinov2-small", modality: "image", width: 384 },
      { model: "siglip2-base-224", modality: "text", width: 768 },
    ]);
  });

  test("fits into the Secret of a release, which is at most 1 MiB", () => {
    const files = readdirSync(chart, { recursive: true, encoding: "utf8" })
      .map((name) => join(chart, name))
      .filter((path) => statSync(path).isFile())
      .map((path) => readFileSync(path, "base64"));
    const { stdout } = tryTemplate({ models: [...modelCatalogue.keys()], triton });
    const release = gzipSync(JSON.stringify({ files, manifest: stdout })).toString("base64");
    expect(release.length).toBeLessThan(2 ** 19);
  });
});

describe.skipIf(noHelm !== "")("chart with a model outside the catalogue", () => {
  const values: ChartValues = { ...chartModels([own]), embed: { backend: "triton" } };
  const texts: ChartValues["triton"] = { ...triton, modelConfig: { texts: ownTexts } };

  test("passes its spec to the embed server", () => {
    expect(servedIn({ ...values, triton: texts })).toEqual([own]);
  });

  test("serves it with the configurations of the values", () => {
    const found = configsIn(template({ ...values, triton: texts }));
    expect(found.map(({ name, config }) => [name, config.name])).toEqual([
      ["clipstack-triton-own-model", "own_model"],
      ["clipstack-triton-own-model-text", "own_model_text"],
    ]);
  });

  test("fails without its configurations", () => {
    expect(rejectionOf({ ...values, triton })).toBe(
      "triton.modelConfig.texts.own_model is required: the chart has configurations for the catalogue only ('clipstack model repository' writes them)",
    );
  });
});

describe.skipIf(noHelm !== "")("weights of several models", () => {
  test("are mounted from the folders of a volume, by default those of a model repository", () => {
    const towers = { openclip_vit_b32: { subPath: "clip", sha256 } };
    const values: ChartValues = {
      ...gateway,
      model: { weights: "pvc", pvc: { claimName: "weights" }, towers },
    };
    const pod = podOf(values, "triton");
    expect(mountsOf(pod)).toEqual([
      ["weights", "/models/openclip_vit_b32/1", "clip"],
      ["weights", "/models/openclip_vit_b32_text/1", "openclip_vit_b32_text/1"],
      ["weights", "/models/dinov2_small/1", "dinov2_small/1"],
      ["weights", "/models/siglip2_base_224_text/1", "siglip2_base_224_text/1"],
    ]);
    expect(pod.initContainers.map((it: { name: string }) => it.name)).toEqual(["weights"]);
    expect(readCheckWeightsArguments(pod.initContainers[0].args.slice(1))).toMatchObject({
      sha256,
    });
    expect(pod.volumes.filter(({ name }: Mount) => name.startsWith("weights"))).toEqual([
      { name: "weights", persistentVolumeClaim: { claimName: "weights", readOnly: true } },
    ]);
  });

  test("include the tokenizer files that a gateway reads", () => {
    const values: ChartValues = {
      ...gateway,
      model: { weights: "pvc", pvc: { claimName: "weights" } },
    };
    const pod = podOf(values, "embed");
    expect(mountsOf(pod)).toEqual([
      ["weights", "/models/siglip2_base_224_text/1", "siglip2_base_224_text/1"],
    ]);
    expect(pod).not.toHaveProperty("initContainers");
  });

  test("are downloaded by one init container per file", () => {
    const pod = podOf({ models, model: downloaded }, "embed");
    const jobs = pod.initContainers.map(
      ({ name, args: [job, ...args] }: { name: string; args: string[] }) => {
        expect(job).toBe("fetch-weights");
        const { url, file } = readFetchWeightsArguments(args);
        return [name, url, file];
      },
    );
    expect(jobs).toEqual([
      ["weights", "https://models.example/clip.onnx", undefined],
      ["weights-openclip-vit-b32-text", "https://models.example/clip-text.onnx", undefined],
      ["weights-dinov2-small", "http://models.example:8080/dinov2.onnx", undefined],
      ["weights-siglip2-base-224-text", "https://models.example/siglip.onnx", undefined],
      [
        "weights-siglip2-base-224-text-tokenizer",
        "https://models.example/tokenizer.model",
        "tokenizer.model",
      ],
    ]);
    expect(mountsOf(pod)).toEqual([
      ["weights", "/models/openclip_vit_b32/1", ""],
      ["weights-openclip-vit-b32-text", "/models/openclip_vit_b32_text/1", ""],
      ["weights-dinov2-small", "/models/dinov2_small/1", ""],
      ["weights-siglip2-base-224-text", "/models/siglip2_base_224_text/1", ""],
    ]);
  });

  test("of a gateway are the tokenizers, and Triton's are without them", () => {
    const objects = template({ ...gateway, model: downloaded });
    const names = (component: "embed" | "triton") =>
      podIn(objects, component).initContainers.map((it: { name: string }) => it.name);
    expect(names("embed")).toEqual(["weights-siglip2-base-224-text-tokenizer"]);
    expect(names("triton")).not.toContain("weights-siglip2-base-224-text-tokenizer");
    const ports = (component: string) =>
      objectOf(objects, "NetworkPolicy", `clipstack-${component}`)
        .spec.egress.flatMap((rule: { ports: { port: unknown }[] }) => rule.ports)
        .map(({ port }: { port: unknown }) => port);
    expect(ports("embed")).toEqual([53, 53, "grpc", 443]);
    expect(ports("triton")).toEqual([53, 53, 443, 8080]);
  });

  test("are downloaded from the URLs of a Secret, under the names of the towers", () => {
    const towers = Object.fromEntries(
      Object.entries(downloaded?.towers ?? {}).map(([name, { tokenizer }]) => [
        name,
        { sha256, ...(tokenizer !== undefined && { tokenizer: { sha256 } }) },
      ]),
    );
    const init = { existingSecret: "urls" };
    const pod = podOf({ models, model: { weights: "init", init, towers } }, "embed");
    expect(
      pod.initContainers.map(
        (it: { env: { valueFrom: { secretKeyRef: { key: string } } }[] }) =>
          it.env[0]?.valueFrom.secretKeyRef.key,
      ),
    ).toEqual([...Object.keys(towers), "siglip2_base_224_text.tokenizer"]);
  });
});
