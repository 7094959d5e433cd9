import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { imageTensor } from "../../inference/preprocess/image-tensor.ts";
import { syntheticImages } from "../check/compare-models.ts";
import { optimiseModel } from "../convert/optimise.ts";

const run = promisify(execFile);
/** Python with PyTorch, onnxscript and open_clip_torch, for example in a virtual environment. */
const python = process.env.CLIPSTACK_PYTHON_TORCH ?? "python3";
const program = fileURLToPath(new URL("../python/export/export.py", import.meta.url));

const missing = await run(python, ["-c", "import torch, onnxscript, open_clip"]).then(
  () => "",
  () =>
    ` (skipped: '${python}' lacks torch, onnxscript or open_clip; set CLIPSTACK_PYTHON_TORCH to a Python that has them)`,
);

describe.skipIf(missing !== "")(`open_clip's image tower, exported by PyTorch${missing}`, () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-pytorch-"));
    await writeFile(join(folder, "spec.json"), JSON.stringify(openclipVitB32));
    const tower = imageTowerOf(openclipVitB32);
    const { data } = imageTensor(syntheticImages(2, tower.input.size), tower);
    await writeFile(join(folder, "inputs"), data as Float32Array);
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  test.each(["torchscript", "dynamo"])(
    "is recognised, exported with %s",
    async (exporter) => {
      const modelPath = join(folder, `${exporter}.onnx`);
      await run(python, [
        ...[program, "--random-weights", "--profile", "tiny", "--exporter", exporter],
        ...["--architecture", "ViT-B-32", "--spec", join(folder, "spec.json")],
        ...["--inputs", join(folder, "inputs"), "--output", modelPath],
      ]);
      const optimised = join(folder, `${exporter}-fast.onnx`);
      const { agreement } = await optimiseModel(openclipVitB32, modelPath, optimised);
      expect(agreement!.minCosine).toBeGreaterThan(0.999999);
    },
    180_000,
  );
});
