import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { InferenceSession, Tensor } from "onnxruntime-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { mobileclip2S0 } from "../../contract/models/mobileclip2-s0.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { openclipVitL14 } from "../../contract/models/openclip-vit-l14.ts";
import { siglip2Base224 } from "../../contract/models/siglip2-base-224.ts";
import type { ModelProfile } from "./architectures.ts";
import { generateModel } from "./generate.ts";
import { textArchitectureOf } from "./text-architectures.ts";

const run = promisify(execFile);
/** Python with PyTorch, onnx, open_clip_torch and Transformers, for example in a virtual environment. */
const python = process.env.CLIPSTACK_PYTHON_TORCH ?? "python3";
const program = fileURLToPath(new URL("./test-text-tower.py", import.meta.url));

const missing = await run(python, ["-c", "import torch, onnx, open_clip, transformers"]).then(
  () => "",
  () =>
    ` (skipped: '${python}' lacks torch, onnx, open_clip or transformers; set CLIPSTACK_PYTHON_TORCH to a Python that has them)`,
);

/** Largest difference of a value from PyTorch's, relative to the largest value of the embedding. */
const limit = 0.001;

/** Token ids of four texts: short, long, without padding, and with an end id in the middle. */
function texts({
  input,
}: NonNullable<ModelSpec["towers"]["text"]>): readonly (readonly number[])[] {
  const { contextLength, vocabularySize, beginId, endId, paddingId } = input;
  const begin = beginId === undefined ? [] : [beginId];
  return [3, 20, contextLength, contextLength - 5].map((length, row) => {
    const words = Array.from(
      { length: length - begin.length - 1 },
      (_, position) => 10 + ((position * 7919 + row * 104_729) % (vocabularySize - 20)),
    );
    if (row === 3) words[10] = endId!;
    const padding = Array<number>(contextLength - length).fill(paddingId);
    return [...begin, ...words, endId!, ...padding];
  });
}

async function embed(file: string, spec: ModelSpec, ids: readonly (readonly number[])[]) {
  const { input, output } = spec.towers.text!;
  const session = await InferenceSession.create(file);
  try {
    const data = BigInt64Array.from(ids.flat(), BigInt);
    const tensor = new Tensor("int64", data, [ids.length, input.contextLength]);
    const results = await session.run({ [input.tensor]: tensor });
    return results[output]!.data as Float32Array;
  } finally {
    await session.release();
  }
}

function largestDifference(rows: readonly (readonly number[])[], values: Float32Array): number {
  const differences = rows.map((row, index) => {
    const largest = Math.max(...row.map(Math.abs));
    const all = row.map((value, k) => Math.abs(value - values[index * row.length + k]!));
    return Math.max(...all) / largest;
  });
  expect(values).toHaveLength(rows.length * rows[0]!.length);
  return Math.max(...differences);
}

describe.skipIf(missing !== "")(`text towers compared with PyTorch${missing}`, () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-text-tower-"));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test.each<{ readonly profile: ModelProfile; readonly spec: ModelSpec }>([
    { profile: "full", spec: openclipVitB32 },
    { profile: "tiny", spec: openclipVitL14 },
    { profile: "tiny", spec: mobileclip2S0 },
    { profile: "tiny", spec: siglip2Base224 },
  ])(
    "the $profile tower of $spec.name agrees within 0.1 %, generated and exported",
    async ({ profile, spec }) => {
      const [generated, exported] = ["generated", "exported"].map((name) =>
        join(folder, `${spec.name}-${name}.onnx`),
      ) as [string, string];
      await generateModel({ spec, modality: "text", profile, seed: 1, file: generated });
      const { sizes } = textArchitectureOf(spec, profile);
      const { family, heads, causal = family === "clip" } = sizes;
      const ids = texts(spec.towers.text!);
      const reference = run(python, [program, generated, exported], { maxBuffer: 2 ** 28 });
      reference.child.stdin!.end(JSON.stringify({ spec, family, heads, causal, ids }));
      const rows = JSON.parse((await reference).stdout.split("\n")[0]!) as number[][];

      expect(largestDifference(rows, await embed(generated, spec, ids))).toBeLessThan(limit);
      expect(largestDifference(rows, await embed(exported, spec, ids))).toBeLessThan(limit);
    },
  );
});
