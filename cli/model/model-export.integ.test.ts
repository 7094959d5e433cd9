import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Modality } from "../../contract/model-spec.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { compareModels, syntheticImages } from "../../model-tools/check/compare-models.ts";
import { openTower } from "../../model-tools/check/run-model.ts";
import { sampleTokenIds } from "../../model-tools/check/token-samples.ts";
import { openClipTower } from "../../model-tools/fetch/open-clip-weights.ts";
import { Safetensors } from "../../model-tools/fetch/safetensors.ts";
import {
  safetensorsFile,
  smallOpenClip,
  smallOpenClipConfig,
} from "../../model-tools/fetch/test-safetensors.ts";
import { writeModel } from "../../model-tools/generate/test-model.ts";
import { structureOf } from "../../model-tools/graph/model-structure.ts";
import { recogniseTower } from "../../model-tools/graph/recognise-tower.ts";
import { readOnnx } from "../../model-tools/onnx/reader.ts";

const python = process.env.CLIPSTACK_PYTHON_TORCH ?? "python3";
const has = spawnSync(python, ["-c", "import torch, onnx, onnxruntime, onnxscript, open_clip"]);
const missing =
  has.status === 0
    ? ""
    : ` (skipped: '${python}' has no torch, onnx, onnxruntime, onnxscript and open_clip; name one that has with CLIPSTACK_PYTHON_TORCH)`;

/** Printed facts of a tower. */
interface Exported {
  readonly agreement: {
    readonly checks: readonly Record<"batch" | "maxDifference" | "minCosine", number>[];
  };
}

const clipstack = fileURLToPath(new URL("../clipstack.mjs", import.meta.url));

describe.skipIf(missing !== "")(`clipstack model export, with PyTorch${missing}`, () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-export-"));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  function exportModel(...args: readonly string[]) {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [clipstack, "model", "export", "--python", python, ...args],
      { cwd: folder, encoding: "utf8", env: { ...process.env, HF_HUB_OFFLINE: "1" } },
    );
    return { status, stdout, last: stderr.trim().split("\n").at(-1) };
  }

  test("exports a tower that agrees with PyTorch at batch 1 and 32, and takes any batch", () => {
    const tiny = ["--random-weights", "--seed", "3", "--profile", "tiny"];
    const { status, stdout } = exportModel(...tiny, "--output", "tiny.onnx", "--json");
    expect(status).toBe(0);
    const [{ agreement, ...info }] = JSON.parse(stdout) as readonly [Exported];
    expect(info).toMatchObject({ source: "exported", weights: "random", seed: 3, opset: 17 });
    expect(agreement.checks.map(({ batch }) => batch)).toEqual([1, 32]);
    for (const { maxDifference, minCosine } of agreement.checks) {
      expect(maxDifference).toBeLessThan(1e-5);
      expect(minCosine).toBeGreaterThan(0.999999);
    }
    const file = readOnnx(join(folder, "tiny.onnx"));
    expect(structureOf(openclipVitB32, "image", file).misfits).toEqual([]);
    expect(recogniseTower(file)).toHaveProperty("tower");
  });

  test.each([
    ["dinov2-small", "image"],
    ["siglip2-base-224", "image"],
    ["siglip2-base-224", "text"],
    ["openclip-vit-l14", "text"],
    ["mobileclip2-s0", "text"],
  ] as const)(
    "exports a tower of %s, of %ss, with the tensors of its spec",
    (name, modality) => {
      const output = `${name}-${modality}.onnx`;
      const tiny = ["--random-weights", "--profile", "tiny", "--output", output, "--json"];
      const { status, stdout } = exportModel(name, "--modality", modality, ...tiny);
      expect(status).toBe(0);
      const [{ agreement }] = JSON.parse(stdout) as readonly [Exported];
      for (const { maxDifference } of agreement.checks) expect(maxDifference).toBeLessThan(1e-4);
      const file = readOnnx(join(folder, output));
      expect(structureOf(modelCatalogue.get(name)!, modality, file).misfits).toEqual([]);
    },
    120_000,
  );

  test.each(["image", "text"] as const)(
    "exports the %s tower of a .safetensors file as 'model pull' converts it",
    async (modality) => {
      const weights = join(folder, "checkpoint.safetensors");
      await writeFile(weights, safetensorsFile(smallOpenClip(openclipVitB32).tensors));
      const config = join(folder, "small-vit.json");
      await writeFile(config, JSON.stringify(smallOpenClipConfig(openclipVitB32)));
      const [exported, converted] = [`${modality}-exported.onnx`, `${modality}-converted.onnx`].map(
        (name) => join(folder, name),
      ) as [string, string];
      const { status, stdout } = exportModel(
        ...["--weights", weights, "--architecture", config, "--modality", modality],
        ...["--output", exported, "--json"],
      );
      expect(status).toBe(0);
      expect(JSON.parse(stdout)).toMatchObject([
        { modality, weights: "checkpoint.safetensors", architecture: "small-vit" },
      ]);
      await writeModel(
        converted,
        openClipTower(openclipVitB32, modality, new Safetensors(weights)),
      );
      const { maxDifference } = await agreementOf(modality, exported, converted);
      expect(maxDifference).toBeLessThan(1e-5);
    },
    120_000,
  );

  async function agreementOf(modality: Modality, expected: string, actual: string) {
    const { image, text } = openclipVitB32.towers;
    const vectorsOf = async (path: string) => {
      const tower = await openTower(openclipVitB32, modality, path);
      try {
        const inputs =
          modality === "image"
            ? syntheticImages(8, image!.input.size)
            : sampleTokenIds(text!.input, 8);
        return await tower.embed(inputs as never, 8);
      } finally {
        await tower.close();
      }
    };
    return compareModels(await vectorsOf(expected), await vectorsOf(actual));
  }

  test("exports MobileCLIP2 after its re-parameterisation", () => {
    const args = ["--random-weights", "--output", "mobileclip2-s0.onnx", "--json"];
    const { status, stdout } = exportModel("mobileclip2-s0", ...args);
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject([{ architecture: "MobileCLIP2-S0" }]);
    const file = readOnnx(join(folder, "mobileclip2-s0.onnx"));
    expect(structureOf(modelCatalogue.get("mobileclip2-s0")!, "image", file).misfits).toEqual([]);
  }, 180_000);

  test.each([
    ["that is none", Buffer.from("no weights"), /weights\.safetensors is not a checkpoint: /],
    [
      "of something else",
      checkpoint({ "visual.class_embedding": 768, "visual.proj": 512 }),
      /weights\.safetensors has no 'visual\.positional_embedding': it is not OpenCLIP's ViT-B-32$/,
    ],
  ])(
    "fails with one line on a checkpoint %s and leaves no files",
    async (_name, bytes, message) => {
      await writeFile(join(folder, "weights.safetensors"), bytes);
      const weights = ["--weights", "weights.safetensors", "--output", "mine.onnx"];
      const { status, last } = exportModel(...weights);
      expect(last).toMatch(/^clipstack: the export failed: --weights: /);
      expect(last).toMatch(message);
      expect(status).toBe(2);
      expect((await readdir(folder)).filter((name) => name.startsWith("mine"))).toEqual([]);
    },
  );

  test("fails with one line if the published weights are unavailable", () => {
    const { status, last } = exportModel("--output", "published.onnx");
    expect(last).toMatch(
      /^clipstack: the export failed: the weights laion2b_s34b_b79k cannot be downloaded: .* \(set HF_ENDPOINT to a mirror, or --weights to a file\)$/,
    );
    expect(status).toBe(2);
  });

  test("fails with one line on an unknown open_clip tag", () => {
    const { status, last } = exportModel("--pretrained", "laion9b", "--output", "published.onnx");
    expect(last).toMatch(
      /--pretrained must be one of openai, .*laion2b_s34b_b79k.*, got 'laion9b'$/,
    );
    expect(status).toBe(2);
  });
});

/** A file of safetensors with vectors of zeros. */
function checkpoint(lengths: Readonly<Record<string, number>>): Buffer {
  return safetensorsFile(
    new Map(
      Object.entries(lengths).map(([name, length]) => [
        name,
        { dims: [length], values: new Float32Array(length) },
      ]),
    ),
  );
}
