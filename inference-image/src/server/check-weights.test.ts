import { copyFile, mkdir, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { identityModel } from "../engine/test-identity-model.ts";
import { generateModel } from "../model/generate.ts";
import { modelInfo, sha256Of, sidecarPath } from "../model/model-info.ts";
import { prepareServerModel } from "../model/prepare.ts";
import { tinyModel } from "../model/test-model.ts";
import { checkWeights, readCheckWeightsArguments } from "./check-weights.ts";

let folder: string;
let file: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-weights-"));
  file = join(folder, "model.onnx");
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const options = (sha256: string) => ({ folder, sha256, executionProvider: "cpu" }) as const;

/** Put the tiny model there as an upload does: without its sidecar. */
async function upload(): Promise<string> {
  await copyFile(await tinyModel(), file);
  return await sha256Of(file);
}

test("checks the file, and puts the embed server's own form beside it", async () => {
  const sha256 = await upload();
  const line = await checkWeights(options(sha256));
  expect(line).toMatch(
    /^\/.*\/model\.onnx is sha256 [0-9a-f]{12}, \d+ MB, weights unknown; the form that the embed server runs lies beside it, cosine 1\.000000, \d+\.\d s$/,
  );
  const cacheDir = join(folder, "cache");
  const { modelPath } = await prepareServerModel({ modelPath: file, cacheDir });
  expect(modelPath).toContain(join(folder, "prepared"));
  expect(await readdir(folder)).not.toContain("cache");
});

test("prepares the form for a GPU where the embed server computes on one", async () => {
  const sha256 = await upload();
  await checkWeights({ ...options(sha256), executionProvider: "cuda" });
  expect(await readdir(join(folder, "prepared"))).toEqual([
    expect.stringMatching(/^[0-9a-f]{16}-fp32-portable-r\d+$/),
  ]);
});

test("leaves a sidecar that says the checksum, so that no server reads the whole file for it", async () => {
  const sha256 = await upload();
  await checkWeights(options(sha256));
  const { mtimeMs } = await stat(sidecarPath(file));
  expect((await stat(file)).mtimeMs).toBeLessThanOrEqual(mtimeMs);
  expect(await modelInfo(file)).toMatchObject({ sha256, source: "unknown", weights: "unknown" });
});

test("keeps a sidecar that came with the file, and says what the weights are", async () => {
  const sha256 = await upload();
  await copyFile(sidecarPath(await tinyModel()), sidecarPath(file));
  expect(await checkWeights(options(sha256))).toContain("weights random");
  expect(await modelInfo(file)).toMatchObject({ sha256, source: "generated" });
});

test("does not make a form again that is there and intact", async () => {
  const sha256 = await upload();
  await checkWeights(options(sha256));
  const [name] = await readdir(join(folder, "prepared"));
  const made = await stat(join(folder, "prepared", name!));
  await checkWeights(options(sha256));
  expect((await stat(join(folder, "prepared", name!))).ino).toBe(made.ino);
});

test("removes the forms of weights that were there before", async () => {
  await checkWeights(options(await upload()));
  await rm(file);
  await generateModel({ profile: "tiny", seed: 7, file });
  await rm(sidecarPath(file));
  const sha256 = await sha256Of(file);
  expect(await checkWeights(options(sha256))).toMatch(/; 1 of earlier weights removed$/);
  expect(await readdir(join(folder, "prepared"))).toEqual([
    expect.stringMatching(new RegExp(`^${sha256.slice(0, 16)}-fp32-r\\d+$`)),
  ]);
});

test("only looks where no embed server reads the folder, or it may not be written", async () => {
  const sha256 = await upload();
  expect(await checkWeights({ ...options(sha256), executionProvider: "none" })).toMatch(
    /model\.onnx is sha256 [0-9a-f]{12}, \d+ MB, weights unknown$/,
  );
  expect(await readdir(folder)).toEqual(["model.onnx"]);
  const other = "0".repeat(64);
  await expect(checkWeights({ ...options(other), executionProvider: "none" })).rejects.toThrow(
    `${file}: sha256 must be ${other}, got ${sha256}`,
  );
});

test("fails on another file, and leaves no form of it", async () => {
  const sha256 = await upload();
  const other = "0".repeat(64);
  await expect(checkWeights(options(other))).rejects.toThrow(
    `${file}: sha256 must be ${other}, got ${sha256}`,
  );
  expect(await readdir(folder)).toEqual(["model.onnx"]);
});

test("fails where there is no file", async () => {
  await expect(checkWeights(options("0".repeat(64)))).rejects.toThrow(
    `${file}: there is no such file`,
  );
});

test("fails on a model that is no image tower", async () => {
  await writeFile(file, identityModel("FP32", ["N", 4]));
  await expect(checkWeights(options(await sha256Of(file)))).rejects.toThrow(
    /model\.onnx: must be FP32 image \[3, 224, 224\] -> embedding \[512\], got /,
  );
});

test("fails where its folder cannot be written", async () => {
  const sha256 = await upload();
  await mkdir(sidecarPath(file));
  await expect(checkWeights(options(sha256))).rejects.toThrow(
    new RegExp(`^${folder}: cannot be written: .*model\\.onnx\\.json`),
  );
  expect(await readdir(folder)).toEqual(["model.onnx", "model.onnx.json"]);
});

test.each<[string, readonly string[], string]>([
  [
    "no folder",
    ["--sha256", "0".repeat(64)],
    "check-weights: --folder must be given; usage: check-weights --folder … --sha256 … [--execution-provider …]",
  ],
  [
    "a short checksum",
    ["--folder=/weights", "--sha256=abc"],
    "check-weights: --sha256 must be 64 digits, lower-case hexadecimal, got 'abc'",
  ],
  [
    "another provider",
    ["--folder=/weights", `--sha256=${"0".repeat(64)}`, "--execution-provider=tpu"],
    "check-weights: --execution-provider must be cpu, cuda or none, got 'tpu'",
  ],
  [
    "an option that there is not",
    ["--folder=/weights", "--force=yes"],
    "check-weights: Unknown option '--force'; usage: check-weights --folder … --sha256 … [--execution-provider …]",
  ],
  [
    "an option twice",
    ["--folder=/a", "--folder=/b", `--sha256=${"0".repeat(64)}`],
    "check-weights: --folder must be given once, got 2; usage: check-weights --folder … --sha256 … [--execution-provider …]",
  ],
])("refuses %s", (_name, args, message) => {
  expect(() => readCheckWeightsArguments(args)).toThrow(message);
});
