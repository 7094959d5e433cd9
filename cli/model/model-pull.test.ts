import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { siglip2Base224 } from "../../contract/models/siglip2-base-224.ts";
import { testModel, testSentencePiece } from "../../inference/text/test-sentencepiece.ts";
import {
  type Answer,
  file,
  startFileServer,
  type TestServer,
} from "../../model-tools/fetch/test-file-server.ts";
import {
  fewWords,
  safetensorsFile,
  smallOpenClip,
} from "../../model-tools/fetch/test-safetensors.ts";
import { generateModel } from "../../model-tools/generate/generate.ts";
import { structureOf } from "../../model-tools/graph/model-structure.ts";
import { readOnnx } from "../../model-tools/onnx/reader.ts";
import { progressLine, registerModelPull } from "./model-pull.ts";

const small: ModelSpec = { ...fewWords, name: "small-clip" };
const published = safetensorsFile(smallOpenClip(small).tensors);
const sha256 = createHash("sha256").update(published).digest("hex");
const revision = "a".repeat(40);
const weights = {
  ...{ name: "laion2b_s34b_b79k", host: "huggingface", repository: "owner/name", revision },
  ...{ file: "open_clip_model.safetensors", bytes: published.length, sha256 },
};

let folder: string;
let model: string;
let servers: TestServer[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-cli-pull-"));
  model = join(folder, "model.onnx");
  await writeSpec({ weights });
  servers = [];
  const ofProxies = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
  const others = ["HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE", "CLIPSTACK_MODEL_URL"];
  for (const name of [...ofProxies, ...others]) vi.stubEnv(name, undefined);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  await Promise.all(servers.map((server) => server.close()));
  await rm(folder, { recursive: true, force: true });
});

/** Writes the spec of small-clip to a folder of environments, and selects the folder. */
async function writeSpec(changes: Readonly<Record<string, unknown>>): Promise<void> {
  const { name, ...facts } = { ...small, ...changes };
  await mkdir(join(folder, "models"), { recursive: true });
  // YAML includes JSON
  await writeFile(join(folder, "models", `${name}.yaml`), JSON.stringify(facts));
  vi.stubEnv("CLIPSTACK_ENVIRONMENTS_DIR", folder);
}

async function serve(...answers: readonly Answer[]): Promise<TestServer> {
  const server = await startFileServer(...answers);
  servers.push(server);
  return server;
}

/** Runs `clipstack model pull small-clip --output …` and returns its output. */
function pull(...args: readonly string[]): Promise<string> {
  return run("small-clip", "--output", model, ...args);
}

async function run(...args: readonly string[]): Promise<string> {
  const lines: unknown[] = [];
  vi.spyOn(console, "log").mockImplementation((line) => lines.push(line));
  vi.spyOn(console, "error").mockImplementation(() => {});
  const program = new Command().exitOverride();
  registerModelPull(program);
  for (const command of program.commands) {
    command.exitOverride().configureOutput({ writeErr: () => {} });
  }
  await program.parseAsync(["pull", ...args], { from: "user" });
  return lines.join("\n");
}

test("downloads the file that the spec pins from a mirror once", async () => {
  const mirror = await serve(file(published));
  vi.stubEnv("HF_ENDPOINT", `${mirror.url.href}mirror/`);
  const lines = (await pull()).split("\n");
  expect(mirror.requests.map(({ path }) => path)).toEqual([
    `/mirror/owner/name/resolve/${revision}/open_clip_model.safetensors`,
  ]);
  expect(lines).toEqual([
    expect.stringMatching(/^.*model\.onnx written: 1\.1 MB, sha256 [0-9a-f]{64}$/),
    `Weights laion2b_s34b_b79k (MIT) of owner/name@${revision} open_clip_model.safetensors.`,
    `Verified: 1.4 MB with sha256 ${sha256}.`,
  ]);
  expect(await pull()).toMatch(/ exists: 1\.1 MB, sha256 \w+, weights laion2b_s34b_b79k$/);
  expect(mirror.requests).toHaveLength(1);
});

test("--modality text writes the text tower", async () => {
  vi.stubEnv("HF_ENDPOINT", (await serve(file(published))).url.href);
  const [tower, ...others] = JSON.parse(await pull("--modality", "text", "--json"));
  expect(others).toEqual([]);
  expect(tower).toMatchObject({
    modality: "text",
    source: "pulled",
    model: "small-clip",
    derivedFrom: sha256,
    published: { sha256, bytes: published.length, licence: "MIT" },
    resumed: 0,
  });
  expect(structureOf(small, "text", readOnnx(model)).misfits).toEqual([]);
});

test("fetches the file of the tokenizer beside the text tower", async () => {
  const vocabulary = await readFile(testModel);
  const towerFolder = join(folder, "tower");
  const onnx = join(folder, "tower.onnx");
  const text = { ...siglip2Base224.towers.text!, input: testSentencePiece };
  const spec = { ...siglip2Base224, name: "small-clip", towers: { text } };
  await generateModel({ spec, modality: "text", profile: "tiny", seed: 1, file: onnx });
  const body = await readFile(onnx);
  const own = createHash("sha256").update(body).digest("hex");
  const pinned = { ...weights, file: "text.onnx", bytes: body.length, sha256: own };
  await writeSpec({ towers: { text }, embedding: spec.embedding, sources: {}, weights: pinned });
  const hub = await serve(file(body), file(vocabulary));
  vi.stubEnv("HF_ENDPOINT", hub.url.href);
  await run("small-clip", "--output", join(towerFolder, "model.onnx"));
  expect(hub.requests.map(({ path }) => path.split("/").at(-1))).toEqual([
    "text.onnx",
    "test-sentencepiece.model",
  ]);
  expect((await readFile(join(towerFolder, "test-sentencepiece.model"))).equals(vocabulary)).toBe(
    true,
  );
  expect((await readdir(towerFolder)).sort()).toEqual([
    "model.onnx",
    "model.onnx.json",
    "test-sentencepiece.model",
  ]);
});

test("fails for a model whose weights cannot be converted, before a download", async () => {
  await expect(run("dinov2-small", "--output", model)).rejects.toThrow(
    /^dinov2-small has no published file that can be downloaded and converted: run 'npx clipstack model export dinov2-small'$/,
  );
});

test("names the files of a model whose spec pins no weights", async () => {
  await writeSpec({ weights: { name: "own" } });
  await expect(pull()).rejects.toThrow(
    /: copy its ONNX file to \S*small_clip\/1\/model\.onnx.*, or run 'npx clipstack model generate small-clip' for random weights$/,
  );
});

test("downloads another commit with its checksum", async () => {
  const hub = await serve(file(published));
  vi.stubEnv("HF_ENDPOINT", hub.url.href);
  const other = "b".repeat(40);
  await writeSpec({ weights: { ...weights, sha256: "0".repeat(64), bytes: 1 } });
  await expect(pull("--revision", other)).rejects.toThrow(
    "--revision and --sha256 must be set together",
  );
  await expect(pull("--revision", revision, "--sha256", sha256)).rejects.toThrow(
    `--sha256 must be ${"0".repeat(64)} for the commit that the spec of small-clip pins, got ${sha256}`,
  );
  expect(await pull("--revision", other, "--sha256", sha256)).toContain(`owner/name@${other} `);
  expect(hub.requests[0]?.path).toContain(`/resolve/${other}/`);
});

test("downloads from CLIPSTACK_MODEL_URL without sending the token of the hub", async () => {
  const store = await serve(file(published));
  vi.stubEnv("CLIPSTACK_MODEL_URL", `${store.url.href}vit.safetensors?signature=s`);
  vi.stubEnv("HF_TOKEN", "hf_secret");
  await pull();
  expect(store.requests[0]?.path).toBe("/vit.safetensors?signature=s");
  expect(store.requests[0]?.headers.authorization).toBeUndefined();
});

test("without --force, replaces only files that 'model generate' wrote", async () => {
  vi.stubEnv("HF_ENDPOINT", (await serve(file(published))).url.href);
  await generateModel({ spec: openclipVitB32, profile: "tiny", seed: 1, file: model });
  await pull();
  await writeFile(model, "somebody's weights");
  await expect(pull()).rejects.toThrow(
    /model\.onnx exists \(not generated by this project, weights unknown\); --force replaces it$/,
  );
  await pull("--force");
  expect(structureOf(small, "image", readOnnx(model)).misfits).toEqual([]);
});

test("sends no request if the output cannot be written", async () => {
  const hub = await serve(file(published));
  vi.stubEnv("HF_ENDPOINT", hub.url.href);
  await mkdir(model);
  await expect(pull("--force")).rejects.toThrow(/^--output must be a file, got the folder '.*'$/);
  await rm(model, { recursive: true });
  await writeFile(`${model}.json`, "somebody's settings");
  await expect(pull()).rejects.toThrow(
    /model\.onnx\.json exists and does not describe a model; --force replaces it$/,
  );
  expect(hub.requests).toEqual([]);
});

test.each([
  [
    "a hub that is not a URL",
    { HF_ENDPOINT: "hub" },
    [],
    "HF_ENDPOINT must be http://… or https://…",
  ],
  [
    "a hub with a password",
    { HF_ENDPOINT: "https://user:secret@hub" },
    [],
    "HF_ENDPOINT must have no user and no password",
  ],
  ["offline mode", { HF_HUB_OFFLINE: "1" }, [], "HF_HUB_OFFLINE is set: downloads are disabled"],
  [
    "a proxy that is not a URL",
    { HTTPS_PROXY: "proxy:3128" },
    [],
    "HTTPS_PROXY must be like http://host:port or http://user:password@host:port",
  ],
  [
    "--sha256 without --revision",
    {},
    ["--sha256", sha256],
    "--revision and --sha256 must be set together",
  ],
  ["a branch", {}, ["--revision", "main"], "It must be a commit, 40 hexadecimal digits."],
])("fails on %s", async (_name, env, args, message) => {
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  await expect(pull(...args)).rejects.toThrow(message);
});

test.each([
  [{ bytes: 130e6, total: 352e6 }, 130e6, 10, " 36 %  130 of 352 MB  13.0 MB/s  18 s left"],
  [{ bytes: 100e6, total: 352e6 }, 0, 0, " 28 %  100 of 352 MB"],
  [{ bytes: 1e6, total: 352e6 }, 1e6, 10, "  0 %  1.0 of 352 MB  0.1 MB/s  59 min left"],
  [{ bytes: 50e6 }, 50e6, 10, "50 MB  5.0 MB/s"],
])("renders progress: %j", (progress, came, seconds, line) => {
  expect(progressLine(progress, came, seconds)).toBe(line);
});
