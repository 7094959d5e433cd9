import { copyFile, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { modelSha256, sha256Of, sidecarPath } from "../../model-tools/files/model-info.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { exportedTower } from "../../model-tools/graph/test-exported-tower.ts";
import { writeWithExternalData } from "../../model-tools/onnx/test-external-data.ts";
import { checkWeights, readCheckWeightsArguments } from "./check-weights.ts";

let folder: string;
let file: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-weights-"));
  file = join(folder, "model.onnx");
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const options = (sha256: string) => ({ folder, sha256 });

/** Writes the tiny model like an upload, without its sidecar. */
async function upload(): Promise<string> {
  await copyFile(await tinyModel(), file);
  return await sha256Of(file);
}

test("checks the file and writes nothing", async () => {
  expect(await checkWeights(options(await upload()))).toMatch(
    /^\/.*\/model\.onnx is sha256 [0-9a-f]{12}, \d+ MB, weights unknown$/,
  );
  expect(await readdir(folder)).toEqual(["model.onnx"]);
});

test("names the weights if a manifest does", async () => {
  const sha256 = await upload();
  await copyFile(sidecarPath(await tinyModel()), sidecarPath(file));
  expect(await checkWeights(options(sha256))).toContain("weights random");
});

test("checks a model with its external data", async () => {
  await writeWithExternalData(exportedTower(), file, "model.onnx.data");
  const sha256 = await modelSha256(file);
  expect(sha256).not.toBe(await sha256Of(file));
  expect(await checkWeights(options(sha256))).toContain(`is sha256 ${sha256.slice(0, 12)}`);
  await rm(join(folder, "model.onnx.data"));
  await expect(checkWeights(options(sha256))).rejects.toThrow(
    `${file}: its external data 'model.onnx.data' does not exist`,
  );
});

test("fails on another file", async () => {
  const sha256 = await upload();
  const other = "0".repeat(64);
  await expect(checkWeights(options(other))).rejects.toThrow(
    `${file}: sha256 must be ${other}, got ${sha256}`,
  );
});

test("fails on a file for TensorRT that is not in half precision", async () => {
  const other = join(folder, "model.trt-fp16.onnx");
  await copyFile(await tinyModel(), other);
  const found = checkWeights({ ...options(await sha256Of(other)), file: "model.trt-fp16.onnx" });
  await expect(found).rejects.toThrow(
    `${other}: every matrix multiplication must be in half precision for TensorRT, got FP32 in conv1`,
  );
});

test("checks another file of the folder", async () => {
  const other = join(folder, "tokenizer.model");
  await copyFile(await tinyModel(), other);
  const found = await checkWeights({ ...options(await sha256Of(other)), file: "tokenizer.model" });
  expect(found).toMatch(/\/tokenizer\.model is sha256 /);
});

test("fails if the file is missing", async () => {
  await expect(checkWeights(options("0".repeat(64)))).rejects.toThrow(`${file} does not exist`);
});

test.each(
  Object.entries<readonly string[]>({
    "check-weights: --folder must be given; usage: check-weights --folder … --sha256 … [--file …]":
      ["--sha256", "0".repeat(64)],
    "check-weights: --sha256 must be 64 digits, lower-case hexadecimal, got 'abc'": [
      "--folder=/weights",
      "--sha256=abc",
    ],
    "check-weights: --file must be the name of a file, got '../secret'": [
      "--folder=/weights",
      `--sha256=${"0".repeat(64)}`,
      "--file=../secret",
    ],
    "check-weights: Unknown option '--force'; usage: check-weights --folder … --sha256 … [--file …]":
      ["--folder=/weights", "--force=yes"],
    "check-weights: --folder must be given once, got 2; usage: check-weights --folder … --sha256 … [--file …]":
      ["--folder=/a", "--folder=/b", `--sha256=${"0".repeat(64)}`],
  }),
)("rejects %s", (message, args) => {
  expect(() => readCheckWeightsArguments(args)).toThrow(message);
});
