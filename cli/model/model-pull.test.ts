import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { generateModel } from "../../model-tools/generate.ts";
import { lockedUrl, readModelLock, repositoryLock } from "../../model-tools/model-lock.ts";
import { onnxChunks } from "../../model-tools/onnx-writer.ts";
import { exportedTower } from "../../model-tools/test-exported-tower.ts";
import {
  type Answer,
  file,
  startFileServer,
  type TestServer,
} from "../../model-tools/test-file-server.ts";
import { progressLine, registerModelPull } from "./model-pull.ts";

const published = Buffer.concat(
  [...onnxChunks(exportedTower({ batch: 1, unitLength: true }))].map((piece) => Buffer.from(piece)),
);
const sha256 = createHash("sha256").update(published).digest("hex");
const locked = {
  weights: "laion2b_s34b_b79k",
  repository: "owner/name",
  revision: "a".repeat(40),
  path: "visual/model.onnx",
  bytes: published.length,
  sha256,
  licence: "MIT",
};

let folder: string;
let model: string;
let lock: string;
let servers: TestServer[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-cli-pull-"));
  [model, lock] = [join(folder, "model.onnx"), join(folder, "lock.json")];
  await writeFile(lock, JSON.stringify({ schema: 1, model: locked }));
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

async function serve(...answers: readonly Answer[]): Promise<TestServer> {
  const server = await startFileServer(...answers);
  servers.push(server);
  return server;
}

/** Runs `clipstack model pull …` and returns its output. */
async function pull(...args: readonly string[]): Promise<string> {
  const lines: unknown[] = [];
  vi.spyOn(console, "log").mockImplementation((line) => lines.push(line));
  vi.spyOn(console, "error").mockImplementation(() => {});
  const program = new Command().exitOverride();
  registerModelPull(program);
  for (const command of program.commands) {
    command.exitOverride().configureOutput({ writeErr: () => {} });
  }
  await program.parseAsync(["pull", "--output", model, "--lock", lock, ...args], { from: "user" });
  return lines.join("\n");
}

test("downloads the locked file from a mirror once", async () => {
  const mirror = await serve(file(published));
  vi.stubEnv("HF_ENDPOINT", `${mirror.url.href}mirror/`);
  const lines = (await pull()).split("\n");
  expect(mirror.requests.map(({ path }) => path)).toEqual([
    `/mirror/owner/name/resolve/${"a".repeat(40)}/visual/model.onnx`,
  ]);
  expect(lines).toEqual([
    expect.stringMatching(/^.*model\.onnx written: 0\.6 MB, sha256 [0-9a-f]{64}$/),
    `Weights laion2b_s34b_b79k (MIT) of owner/name@${"a".repeat(40)} visual/model.onnx.`,
    `Verified: 0.6 MB with sha256 ${sha256}.`,
    "Converted to the standard graph (dynamic batch, not normalised): cosine to the download at least 1.0000000, on 4 synthetic images.",
  ]);
  expect(await pull()).toMatch(/ exists: 0\.6 MB, sha256 \w+, weights laion2b_s34b_b79k$/);
  expect(mirror.requests).toHaveLength(1);
});

test("prints the download and the converted file as JSON", async () => {
  vi.stubEnv("HF_ENDPOINT", (await serve(file(published))).url.href);
  expect(JSON.parse(await pull("--json", "--published"))).toMatchObject({
    source: "pulled",
    sha256,
    published: { sha256, bytes: published.length, licence: "MIT" },
    resumed: 0,
  });
});

test("trusts another revision on first use with --update-lock and locks it", async () => {
  vi.stubEnv("HF_ENDPOINT", (await serve(file(published))).url.href);
  const revision = "b".repeat(40);
  await expect(pull("--revision", revision)).rejects.toThrow(
    "--revision requires --sha256, or --update-lock, which trusts the download",
  );
  const printed = await pull("--revision", revision, "--update-lock", "--published");
  expect(printed).toContain(
    `Trusted on first use: 0.6 MB with sha256 ${sha256}, without a checksum to compare.`,
  );
  expect(await readModelLock(lock)).toEqual({ ...locked, revision });
});

test("downloads from CLIPSTACK_MODEL_URL without sending the token of the hub", async () => {
  const store = await serve(file(published));
  vi.stubEnv("CLIPSTACK_MODEL_URL", `${store.url.href}vit.onnx?signature=s`);
  vi.stubEnv("HF_TOKEN", "hf_secret");
  await pull("--published");
  expect(store.requests[0]?.path).toBe("/vit.onnx?signature=s");
  expect(store.requests[0]?.headers.authorization).toBeUndefined();
});

test("without --force, replaces only files that 'model generate' wrote", async () => {
  vi.stubEnv("HF_ENDPOINT", (await serve(file(published))).url.href);
  await generateModel({ profile: "tiny", seed: 1, file: model });
  await pull("--published");
  await writeFile(model, "somebody's weights");
  await expect(pull("--published")).rejects.toThrow(
    /model\.onnx exists \(not generated by this project, weights unknown\); --force replaces it$/,
  );
  await pull("--published", "--force");
  expect((await readFile(model)).equals(published)).toBe(true);
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
  ["--sha256 without --revision", {}, ["--sha256", sha256], "--sha256 requires --revision"],
  ["--update-lock without --revision", {}, ["--update-lock"], "--update-lock requires --revision"],
  ["a branch", {}, ["--revision", "main"], "It must be a commit, 40 hexadecimal digits."],
])("fails on %s", async (_name, env, args, message) => {
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  await expect(pull(...args)).rejects.toThrow(message);
});

test("rejects a lock file with a branch instead of a commit", async () => {
  await writeFile(lock, JSON.stringify({ schema: 1, model: { ...locked, revision: "main" } }));
  await expect(pull()).rejects.toThrow(
    `${lock}: model.revision: must be a commit, 40 hexadecimal digits`,
  );
});

test("the lock file of this project pins a commit of the hub", async () => {
  const own = await readModelLock(repositoryLock);
  expect(own).toMatchObject({ weights: "laion2b_s34b_b79k", licence: "MIT" });
  expect(lockedUrl(own, "https://huggingface.co").pathname).toBe(
    `/immich-app/ViT-B-32__laion2b-s34b-b79k/resolve/${own.revision}/visual/model.onnx`,
  );
});

test.each([
  [{ bytes: 130e6, total: 352e6 }, 130e6, 10, " 36 %  130 of 352 MB  13.0 MB/s  18 s left"],
  [{ bytes: 100e6, total: 352e6 }, 0, 0, " 28 %  100 of 352 MB"],
  [{ bytes: 1e6, total: 352e6 }, 1e6, 10, "  0 %  1.0 of 352 MB  0.1 MB/s  59 min left"],
  [{ bytes: 50e6 }, 50e6, 10, "50 MB  5.0 MB/s"],
])("renders progress: %j", (progress, came, seconds, line) => {
  expect(progressLine(progress, came, seconds)).toBe(line);
});
