import { copyFile, mkdir, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readModelConfig } from "../../client/triton/model-config.ts";
import { fingerprintOf, preprocessingSha256 } from "../../contract/fingerprint.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { repositoryAt } from "../../emulator/test-repository.ts";
import { startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { createOnnxEmbedder } from "../../inference-image/onnx/onnx-embedder.ts";
import { openServerModel } from "../../inference-image/onnx/server-model.ts";
import { syntheticImages } from "../../model-tools/check/compare-models.ts";
import { productsNotInHalf } from "../../model-tools/check/half-products.ts";
import { modelSidecar, sha256Of } from "../../model-tools/files/model-info.ts";
import { ensureTinyModel } from "../../model-tools/generate/generate.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { readOnnx } from "../../model-tools/onnx/reader.ts";
import { ensurePython, onnxruntimePackages } from "../../model-tools/python/python-environment.ts";
import { writeModelRepository } from "../../model-tools/repository/repository.ts";
import { clipstack } from "../test-programs.ts";

/** The first run installs ONNX Runtime's tools from PyPI. */
const python = await ensurePython(onnxruntimePackages, { onProgress: () => {} }).catch(
  (error: Error) => error,
);
const missing = python instanceof Error ? ` (skipped: ${python.message})` : "";

describe.skipIf(missing !== "")(`clipstack model convert${missing}`, () => {
  let folder: string;
  let model: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-convert-"));
    model = join(folder, "model.onnx");
    await copyFile(await tinyModel(), model);
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  const convert = (...args: readonly string[]) =>
    clipstack(["model", "convert", "--weights", model, "--rounds", "1", ...args]);

  test.each([
    ["fp16", 0.9999],
    ["int8", 0.99],
  ] as const)(
    "writes an %s file that the server loads, and its manifest",
    async (precision, least) => {
      const { code, stderr } = await convert("--precision", precision);
      expect(stderr).not.toContain("clipstack:");
      expect(code).toBe(0);
      const text = await readFile(join(folder, `model.${precision}.onnx.json`), "utf8");
      const manifest = modelSidecar.parse(JSON.parse(text));
      expect(manifest).toMatchObject({
        precision,
        derivedFrom: await sha256Of(model),
        versions: { onnxruntime: "1.30.0" },
        agreement: { images: 21 },
      });
      expect(manifest.agreement!.minCosine).toBeGreaterThan(least);
      const opened = await openServerModel({
        spec: defaultModel,
        modelPath: model,
        precision,
        intraOpThreads: 1,
      });
      const embedder = createOnnxEmbedder(opened, { maxQueueDelayMicroseconds: 0 });
      const vectors = await embedder.embed(
        syntheticImages(2, imageTowerOf(defaultModel).input.size),
      );
      await embedder.close();
      expect(vectors.map(({ length }) => length)).toEqual([512, 512]);
    },
    300_000,
  );

  test("writes a file for TensorRT 11: half precision inside, FP32 inputs and outputs", async () => {
    const source = join(folder, "text.onnx");
    await copyFile(await ensureTinyModel(defaultModel, "text"), source);
    for (const [weights, ...args] of [[model], [source, "--modality", "text"]] as const) {
      const { code, stdout } = await clipstack([
        ...["model", "convert", "--precision", "fp16", "--keep-graph", "--rounds", "1"],
        ...["--weights", weights, ...args],
      ]);
      expect(code).toBe(0);
      expect(stdout).toContain("cosine to the original");
      expect(stdout).toContain("Every matrix multiplication is in half precision.");
      const [before, after] = [readOnnx(weights), readOnnx(join(folder, "model.trt-fp16.onnx"))];
      expect(productsNotInHalf(before)).not.toEqual([]);
      expect(productsNotInHalf(after)).toEqual([]);
      expect(after.inputs).toEqual(before.inputs);
      expect(after.outputs).toEqual(before.outputs);
    }
  }, 120_000);

  test("model deploy adds the file for TensorRT 11 under the name in the configuration", async () => {
    const weights = join(folder, "trt");
    await mkdir(weights);
    await copyFile(model, join(weights, "model.onnx"));
    const words = ["--precision", "fp16", "--keep-graph", "--rounds", "1", "--weights"];
    const converted = await clipstack(["model", "convert", ...words, join(weights, "model.onnx")]);
    expect(converted.code).toBe(0);
    const repository = join(folder, "repository");
    await writeModelRepository([{ spec: defaultModel, files: { image: model } }], repository);
    const name = tritonModelName(defaultModel, "trt");
    const triton = await startTritonEmulator(
      repositoryAt(repository).flags({
        "model-control-mode": "explicit",
        "load-model": [name],
      }),
      { log: () => {} },
    );
    const url = `http://127.0.0.1:${triton.ports.http}`;
    try {
      const { code, stderr } = await clipstack([
        ...["model", "deploy", "--model-kind", "trt", "--folder", repository, "--url", url],
        ...["--file", join(weights, "model.trt-fp16.onnx")],
      ]);
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    } finally {
      await triton.stop();
    }
    const version = join(repository, name, "2");
    expect((await readdir(version)).sort()).toEqual([
      "model.trt-fp16.onnx",
      "model.trt-fp16.onnx.json",
    ]);
    const { parameters } = readModelConfig(
      await readFile(join(repository, name, "config.pbtxt"), "utf8"),
      name,
    );
    const identity = { sha256: await sha256Of(model), precision: "fp16" } as const;
    expect(parameters).toMatchObject({
      fingerprint: {
        string_value: fingerprintOf(preprocessingSha256(defaultModel, "image"), identity),
      },
      fingerprint_version: { string_value: "2" },
    });
  }, 120_000);

  test("rejects a text tower for another precision", async () => {
    const { code, stderr } = await convert("--precision", "int8", "--modality", "text");
    expect(code).toBe(2);
    expect(stderr).toContain("--modality text requires --precision fp16 and --keep-graph");
  });

  test("keeps the graph and its input with --keep-graph", async () => {
    const { code, stdout } = await convert(
      ...["--precision", "int8", "--keep-graph", "--json"],
      ...["--output", join(folder, "planes.onnx")],
    );
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ precision: "int8", measured: [{}, {}] });
    const { stdout: report } = await clipstack([
      ...["model", "check", "--weights", join(folder, "planes.onnx")],
    ]);
    expect(report).toContain(
      "ok    fits openclip-vit-b32, in the model repository: openclip_vit_b32, openclip_vit_b32_trt",
    );
  }, 300_000);

  test("rejects a file below the minimum cosine and keeps the existing one", async () => {
    const output = join(folder, "kept.onnx");
    await convert("--precision", "int8", "--output", output);
    const before = await sha256Of(output);
    const { code, stderr } = await convert(
      ...["--precision", "int8", "--min-cosine", "1", "--output", output],
    );
    expect(stderr.trim().split("\n").at(-1)).toMatch(
      /^clipstack: the file was rejected: the lowest cosine to the original must be at least 1, got 0\.99\d+ at batch 1$/,
    );
    expect(code).toBe(1);
    expect(await sha256Of(output)).toBe(before);
    expect((await readdir(folder)).filter((name) => name.includes(".part"))).toEqual([]);
  }, 300_000);
});
