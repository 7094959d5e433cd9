import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { siglip2Base224 } from "../../contract/models/siglip2-base-224.ts";
import { serverEnv } from "../../contract/server/server-env.ts";
import { testModel, testSentencePiece } from "../../inference/text/test-sentencepiece.ts";
import { fewWords } from "../../model-tools/fetch/test-safetensors.ts";
import { modelFile } from "../../model-tools/generate/generate.ts";
import { embedSettings, gatewaySettings } from "./served-models.ts";

/** Small models, so that their stand-ins in the checkout's model repository are written quickly. */
const clip: ModelSpec = { ...fewWords, name: "test-serve-clip" };
const siglip: ModelSpec = {
  ...siglip2Base224,
  name: "test-serve-siglip",
  towers: {
    image: siglip2Base224.towers.image!,
    text: { ...siglip2Base224.towers.text!, input: testSentencePiece },
  },
};

let folder: string;
let printed: string[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-served-"));
  await mkdir(join(folder, "models"));
  for (const { name, ...facts } of [clip, siglip]) {
    await writeFile(
      join(folder, "models", `${name}.yaml`),
      JSON.stringify({ ...facts, sources: {} }),
    );
  }
  vi.stubEnv("CLIPSTACK_ENVIRONMENTS_DIR", folder);
  // the optimised files are not the subject
  vi.stubEnv("MODEL_PRECISION", "fp32");
  printed = [];
  vi.spyOn(console, "error").mockImplementation((line: string) => void printed.push(line));
});
afterEach(async () => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  await rm(folder, { recursive: true, force: true });
  for (const spec of [clip, siglip]) {
    for (const modelKind of ["fp32", "text"] as const) {
      await rm(dirname(dirname(modelFile(spec, modelKind))), { recursive: true, force: true });
    }
  }
});

/** Names of the towers that a server with these settings serves. */
function servedTowers(settings: Awaited<ReturnType<typeof embedSettings>>): readonly string[] {
  return serverEnv.parse(settings).MODELS.flatMap(({ towers }) => Object.keys(towers));
}

test("generates both towers with random weights, or the one that the value names", async () => {
  const both = await embedSettings([clip.name]);
  expect(servedTowers(both)).toEqual(["image", "text"]);
  for (const modelKind of ["fp32", "text"] as const) {
    const file = modelFile(clip, modelKind, both.MODEL_REPOSITORY);
    const manifest = JSON.parse(await readFile(`${modelFile(clip, modelKind)}.json`, "utf8"));
    expect(manifest).toMatchObject({ weights: "random", model: clip.name });
    expect((await readFile(file)).length).toBe(manifest.bytes);
  }
  expect(printed).toEqual([
    `generating ${clip.name} with random weights …`,
    `Stand-in: the architecture of ${clip.name} is not known to the generator, so speed and size are not those of the model.`,
  ]);
  expect(servedTowers(await embedSettings([`${clip.name}:text`]))).toEqual(["text"]);
});

test("serves a model without texts if its image tower has trained weights and its text tower is missing", async () => {
  const file = modelFile(clip);
  await embedSettings([`${clip.name}:image`]);
  await rm(`${file}.json`);
  expect(servedTowers(await embedSettings([clip.name]))).toEqual(["image"]);
  const problem =
    "its text tower is missing, and its image tower has trained weights: see 'clipstack model pull' and 'clipstack model export'";
  expect(printed.at(-1)).toBe(`${clip.name} is served without texts: ${problem}`);
  await expect(embedSettings([`${clip.name}:text`])).rejects.toThrow(
    `${clip.name} cannot embed texts: ${problem}`,
  );
});

test("requires the file of a tokenizer, and links it beside the text tower", async () => {
  const target = join(dirname(modelFile(siglip, "text")), testSentencePiece.tokenizer.file);
  await expect(embedSettings([`${siglip.name}:text`])).rejects.toThrow(
    /^test-serve-siglip cannot embed texts: the file of its tokenizer is missing: run 'npx clipstack model pull test-serve-siglip', or copy test-sentencepiece\.model to \S+test_serve_siglip_text\/1$/,
  );
  await mkdir(dirname(target), { recursive: true });
  await copyFile(testModel, target);
  const settings = await embedSettings([`${siglip.name}:text`]);
  expect(servedTowers(settings)).toEqual(["text"]);
  const linked = join(
    dirname(modelFile(siglip, "text", settings.MODEL_REPOSITORY)),
    "test-sentencepiece.model",
  );
  expect((await readFile(linked)).equals(await readFile(testModel))).toBe(true);
});

test("a gateway serves one tower of a model", () => {
  const settings = gatewaySettings([
    `${clip.name}:image`,
    "dinov2-small:image",
    "siglip2-base-224",
  ]);
  expect(servedTowers(settings)).toEqual(["image", "image", "image", "text"]);
  expect(() => gatewaySettings(["dinov2-small:text"])).toThrow(
    "model dinov2-small must have a text tower",
  );
  expect(() => gatewaySettings(["model.onnx"])).toThrow(/^model must be one of/);
});
