import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readOnnx } from "../../model-tools/onnx-reader.ts";
import { recogniseTower } from "../../model-tools/recognise-tower.ts";
import { isStandard } from "../../model-tools/standard-model.ts";

const python = process.env.CLIPSTACK_PYTHON_TORCH ?? "python3";
const has = spawnSync(python, ["-c", "import torch, onnx, onnxruntime, onnxscript, open_clip"]);
const missing =
  has.status === 0
    ? ""
    : ` (skipped: '${python}' has no torch, onnx, onnxruntime, onnxscript and open_clip; name one that has with CLIPSTACK_PYTHON_TORCH)`;

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
    const { agreement, ...info } = JSON.parse(stdout) as {
      readonly agreement: {
        readonly checks: readonly Record<"batch" | "maxDifference" | "minCosine", number>[];
      };
    };
    expect(info).toMatchObject({ source: "exported", weights: "random", seed: 3, opset: 17 });
    expect(agreement.checks.map(({ batch }) => batch)).toEqual([1, 32]);
    for (const { maxDifference, minCosine } of agreement.checks) {
      expect(maxDifference).toBeLessThan(1e-5);
      expect(minCosine).toBeGreaterThan(0.999999);
    }
    const file = readOnnx(join(folder, "tiny.onnx"));
    expect(isStandard(file)).toBe(true);
    expect(recogniseTower(file)).toHaveProperty("tower");
  });

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
  let end = 0;
  const entries = Object.entries(lengths).map(([name, length]) => {
    const start = end;
    end += 4 * length;
    return [name, { dtype: "F32", shape: [length], data_offsets: [start, end] }] as const;
  });
  const header = Buffer.from(JSON.stringify(Object.fromEntries(entries)));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([size, header, Buffer.alloc(end)]);
}
