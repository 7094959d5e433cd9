import { copyFile, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { createOnnxEmbedder } from "../../inference-image/embed/onnx-embedder.ts";
import { openServerModel } from "../../inference-image/embed/server-model.ts";
import { syntheticImages } from "../../model-tools/compare-models.ts";
import { modelSidecar, sha256Of } from "../../model-tools/model-info.ts";
import { tinyModel } from "../../model-tools/test-model.ts";
import { clipstack } from "../test-programs.ts";
import { ensurePython, onnxruntimePackages } from "./python-environment.ts";

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

  test("does not replace a file from another source", async () => {
    const output = join(folder, "mine.onnx");
    await writeFile(output, "mine");
    const { code, stderr } = await convert("--precision", "int8", "--output", output);
    expect(stderr).toMatch(/; --force replaces it$/);
    expect(code).toBe(2);
  });
});
