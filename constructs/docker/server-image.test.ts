import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels, modelCatalogue } from "../../contract/models/index.ts";
import { embedImage, type ImageSetting, tritonImage } from "../../stacks/shared/image-builds.ts";
import { expression } from "../terraform/expression.ts";
import { hostIn, synth } from "../test-synth.ts";
import type { ImageKind } from "./gpu-host.ts";

function synthImage(
  setting: ImageSetting,
  kind: Extract<ImageKind, "triton" | `embed-${string}`> = "embed-cpu",
  models?: readonly ModelSpec[],
) {
  const source =
    kind === "triton" ? tritonImage(setting, models) : embedImage(kind, setting, models);
  const result = synth((stack) => hostIn(stack).image(kind, source));
  return { ...result, image: result.at(`test/host/${kind}-image/image`) };
}

const root = fileURLToPath(new URL("../../", import.meta.url));

test("keeps a pulled image when the environment is destroyed", () => {
  const { image } = synthImage({ source: "pull", name: "embed:1" });
  expect(image).toMatchObject({ name: "embed:1", keep_locally: true });
  expect(image).not.toHaveProperty("build");
});

test("names a built image by its content and removes it with the environment", () => {
  const { image, json } = synthImage({ source: "build" });
  const [local = "", hash = ""] = Object.entries(json.locals)[0] as [string, string];
  expect(image).toMatchObject({
    name: `clipstack/embed:cpu-${expression(`local.${local}`)}`,
    keep_locally: false,
    build: {
      context: `${expression("path.root")}/../../../.`,
      dockerfile: "inference-image/Dockerfile",
    },
    triggers: { content: expression(`local.${local}`) },
  });
  expect(hash).toContain("inference-image}/**");
});

test("builds on the engine of the provider", () => {
  // the other builder of the provider uses the endpoint of the Docker CLI
  expect(synthImage({ source: "build" }).image.build.use_legacy_builder).toBe(true);
});

test.each(["pull", "build"] as const)(
  "creates the new image before the old one is removed: %s",
  (source) => {
    const name = source === "pull" ? { name: "embed:1" } : {};
    const { image } = synthImage({ source, ...name } as ImageSetting);
    expect(image.timeouts).toEqual({ create: "2h" });
    expect(image.lifecycle).toEqual({ create_before_destroy: true });
  },
);

test("has a different tag for different build arguments", () => {
  const hash = (source: ImageSetting) => Object.values(synthImage(source).json.locals)[0];
  const other = { source: "build", buildArgs: { NODE_IMAGE: "node:24" } } as const;
  expect(hash(other)).not.toBe(hash({ source: "build" }));
  expect(synthImage(other).image.build.build_args).toEqual({ NODE_IMAGE: "node:24" });
});

test("adds the weights in a second build", () => {
  const { at, image } = synthImage({ source: "build" }, "embed-gpu", defaultModels);
  const top = at("test/host/embed-gpu-image/weights-image");
  expect(top.name).toMatch(/^clipstack\/embed:gpu-weights-\$\{local\./);
  expect(top.build).toMatchObject({
    context: `${expression("path.root")}/../../../model_repository`,
    dockerfile: "image/Dockerfile.weights",
  });
  expect(top.build.build_args.IMAGE).toMatch(
    /^\$\{docker_image\.host_embed-gpu-image_image.*name\}$|name\}$/,
  );
  expect(image.name).toMatch(/^clipstack\/embed:gpu-\$\{local\./);
});

test("explains how to get missing weights", () => {
  const condition = (kind: "embed-cpu" | "triton", weights: boolean, id: string) =>
    synthImage({ source: "build" }, kind, weights ? defaultModels : undefined).at(
      `test/host/${kind}-image/${id}`,
    ).lifecycle.precondition?.[0].error_message;
  const message = expect.stringContaining("There are no weights at model_repository/");
  expect(condition("embed-cpu", true, "weights-image")).toEqual(message);
  expect(condition("triton", true, "image")).toEqual(message);
  expect(condition("triton", false, "image")).toBeUndefined();
});

test("builds Triton's image with and without the weights", () => {
  const args = (weights: boolean) =>
    synthImage({ source: "build" }, "triton", weights ? defaultModels : undefined).image.build
      .build_args;
  expect(args(true)).toEqual({ WEIGHTS: "image" });
  expect(args(false)).toEqual({ WEIGHTS: "none" });
});

const search = ["dinov2-small", "openclip-vit-b32", "siglip2-base-224"].map(
  (name) => modelCatalogue.get(name)!,
);

test.each([
  ["embed-cpu", "weights-image", "{,_trt}"],
  ["triton", "image", "{,_trt,_u8,_preprocess,_jpeg}"],
] as const)("copies every tower of the models: %s", (kind, id, suffixes) => {
  const { at, json } = synthImage({ source: "build" }, kind, search);
  const { build, lifecycle } = at(`test/host/${kind}-image/${id}`);
  expect(build.build_args.MODELS).toBe("dinov2-small,openclip-vit-b32,siglip2-base-224");
  const towers = [
    "dinov2_small",
    "openclip_vit_b32",
    "openclip_vit_b32_text",
    "siglip2_base_224",
    "siglip2_base_224_text",
  ];
  const hash = Object.values(json.locals).join("\n");
  for (const tower of towers)
    expect(hash).toContain(`/model_repository", "${tower}${suffixes}/**"`);
  const files = lifecycle.precondition.map(({ condition }: { readonly condition: string }) =>
    condition.replace(/.*\/model_repository\/|"\)\}$/g, ""),
  );
  expect(files).toEqual([
    ...towers.map((tower) => `${tower}/1/model.onnx`),
    "siglip2_base_224_text/1/tokenizer.model",
  ]);
});

test("has a different tag for different models, and the same for the default ones", () => {
  const hash = (models?: readonly ModelSpec[]) =>
    Object.values(synthImage({ source: "build" }, "triton", models).json.locals).join("\n");
  expect(hash(search)).not.toBe(hash(search.slice(0, 2)));
  const { at } = synthImage({ source: "build" }, "embed-cpu", defaultModels);
  expect(at("test/host/embed-cpu-image/weights-image").build.build_args).not.toHaveProperty(
    "MODELS",
  );
});

test("requires the weights on the deploying machine and disk space for the host", () => {
  const { at } = synthImage({ source: "build" }, "embed-cpu", search.slice(0, 1));
  const { files, disk } = at("test/host/check/doctor").triggers_replace;
  expect(files).toEqual([
    {
      path: "model_repository/dinov2_small/1/model.onnx",
      on: "here",
      what: "the file with the weights of dinov2-small",
    },
  ]);
  expect(disk).toContainEqual({ what: "weights in the embed-cpu image", miB: 512 });
});

/** Sources of the `COPY` instructions that copy from the build context, without the folders of models. */
function copied(dockerfile: string): readonly string[] {
  const text = readFileSync(`${root}${dockerfile}`, "utf8");
  return [...text.matchAll(/^COPY (?!--from)(.+)$/gm)].flatMap(([, words = ""]) =>
    words
      .trim()
      .split(/\s+/)
      .slice(0, -1)
      .filter((source) => source !== "."),
  );
}

test.each([
  ["embed-cpu", "inference-image/Dockerfile", ""],
  ["embed-gpu", "inference-image/Dockerfile.gpu", ""],
  ["triton", "model_repository/image/Dockerfile.triton", "model_repository/"],
] as const)("hashes everything that the Dockerfile of %s copies", (kind, dockerfile, context) => {
  const hash = String(Object.values(synthImage({ source: "build" }, kind).json.locals)[0]);
  const patterns = [...hash.matchAll(/fileset\("[^"]*", "([^"]*)"\)/g)].map(([, it = ""]) => it);
  const sources = copied(dockerfile);
  expect(sources.length).toBeGreaterThan(1);
  for (const source of sources) {
    expect(existsSync(`${root}${context}${source}`), source).toBe(true);
    expect(
      patterns.some((pattern) => covers(pattern, source)),
      source,
    ).toBe(true);
  }
});

/** Returns whether a pattern of `fileset` matches a file, or the content of a folder. */
function covers(pattern: string, source: string): boolean {
  const alternatives = /^(.*)\{(.*)\}(.*)$/.exec(pattern);
  if (alternatives !== null) {
    const [, before = "", words = "", after = ""] = alternatives;
    return words.split(",").some((word) => covers(`${before}${word}${after}`, source));
  }
  return (
    pattern === source ||
    pattern === "**" ||
    pattern.startsWith(`${source}/`) ||
    (pattern.endsWith("/**") && source.startsWith(pattern.slice(0, -2)))
  );
}
