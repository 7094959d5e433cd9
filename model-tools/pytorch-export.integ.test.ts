import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { optimiseModel } from "./optimise.ts";
import { draftModelFile } from "./publish-file.ts";
import { writeStandardModel } from "./standard-model.ts";

const run = promisify(execFile);
/** Python with PyTorch, onnxscript and open_clip_torch, for example in a virtual environment. */
const python = process.env.CLIPSTACK_PYTHON_TORCH ?? "python3";
const program = fileURLToPath(new URL("./pytorch-export.py", import.meta.url));

const missing = await run(python, ["-c", "import torch, onnxscript, open_clip"]).then(
  () => "",
  () =>
    ` (skipped: '${python}' lacks torch, onnxscript or open_clip; set CLIPSTACK_PYTHON_TORCH to a Python that has them)`,
);

describe.skipIf(missing !== "")(`open_clip's image tower, exported by PyTorch${missing}`, () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-pytorch-"));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  test.each(["torchscript", "dynamo"])(
    "is recognised, exported with %s",
    async (exporter) => {
      const modelPath = join(folder, `${exporter}.onnx`);
      await run(python, [program, modelPath, exporter]);
      const { agreement } = await optimiseModel(modelPath, join(folder, `${exporter}-fast.onnx`));
      expect(agreement!.minCosine).toBeGreaterThan(0.999999);
    },
    180_000,
  );

  test.each(["torchscript", "dynamo"])(
    "is converted to the standard graph from batch size 1 with normalisation, exported with %s",
    async (exporter) => {
      const path = join(folder, `${exporter}-published.onnx`);
      await run(python, [program, path, exporter, "published"]);
      const draft = await draftModelFile(join(folder, `${exporter}-standard.onnx`));
      try {
        const { changes, agreement } = await writeStandardModel(path, draft);
        expect(changes).toEqual(["dynamic batch", "not normalised"]);
        expect(agreement.minCosine).toBeGreaterThan(0.999999);
        expect(agreement.maxDifference).toBeLessThan(5e-6);
      } finally {
        await draft.discard();
      }
    },
    180_000,
  );
});
