import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { embeddingDims, openclipVitB32U8, pixelBytes } from "../contract/model-signature.ts";
import type { Fp32Tensor } from "../contract/tensor.ts";
import { readSharing } from "../model/model-sharing.ts";
import { prepareServerModel } from "../model/prepare.ts";
import { tinyModel } from "../model/test-model.ts";
import { pixelTensor } from "./image-tensor.ts";
import {
  canShareWeights,
  type OpenedSession,
  openSession,
  type Sharing,
  type WeightFile,
} from "./onnx-session.ts";
import type { ModelSession } from "./types.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-shared-weights-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

async function form(precision: "fp32" | "int8" = "fp32") {
  const cacheDir = join(folder, "cache");
  const { modelPath } = await prepareServerModel({
    modelPath: await tinyModel(),
    precision,
    cacheDir,
  });
  return { modelPath, sharing: readSharing(modelPath) as Sharing & { weights: WeightFile } };
}

function open(modelPath: string, sharing?: Sharing, intraOpThreads = 1): Promise<OpenedSession> {
  return openSession({ modelPath, intraOpThreads, sharing });
}

const images = [1, 2, 3].map((seed) =>
  Uint8Array.from({ length: pixelBytes }, (_, i) => (i * 31 * seed) % 251),
);

async function embed(session: ModelSession, from = images): Promise<Float32Array> {
  const { outputs } = await session.run([pixelTensor(from)]);
  return (outputs[0] as Fp32Tensor).data;
}

describe.runIf(canShareWeights())("sessions that share their weights", () => {
  test.each(["fp32", "int8"] as const)(
    "give what a session with its own gives, to the bit, in %s",
    async (precision) => {
      const { modelPath, sharing } = await form(precision);
      const alone = await open(modelPath);
      const first = await open(modelPath, sharing, 2);
      const second = await open(modelPath, { ...sharing, weights: first.weights! });
      expect(first.inputs).toEqual(alone.inputs);
      expect(first.outputs).toEqual(alone.outputs);
      const expected = await embed(alone);
      expect(expected).toHaveLength(images.length * embeddingDims);
      const [one, two] = await Promise.all([embed(first), embed(second)]);
      expect(one).toEqual(expected);
      expect(two).toEqual(expected);
      await Promise.all([alone.close(), second.close()]);
      // the first goes on
      expect(await embed(first)).toEqual(expected);
      await first.close();
    },
  );

  test("have those that the first one loaded, not those that the model file names", async () => {
    const { modelPath, sharing } = await form();
    const own = await open(modelPath);
    const file = join(folder, "halved.bin");
    const values = new Float32Array((await readFile(sharing.weights.file)).buffer.slice(0));
    await writeFile(
      file,
      values.map((value) => value / 2),
    );
    const first = await open(modelPath, { ...sharing, weights: { ...sharing.weights, file } });
    const second = await open(modelPath, { ...sharing, weights: first.weights! });
    const [expected, one, two] = await Promise.all([embed(own), embed(first), embed(second)]);
    expect(one).not.toEqual(expected);
    expect(two).toEqual(one);
    await Promise.all([own.close(), second.close()]);
    await first.close();
  });

  test("open and close again and again", async () => {
    const { modelPath, sharing } = await form();
    const expected = await open(modelPath).then(async (session) => {
      const vectors = await embed(session);
      await session.close();
      return vectors;
    });
    for (let round = 0; round < 5; round++) {
      const first = await open(modelPath, sharing);
      const second = await open(modelPath, { ...sharing, weights: first.weights! });
      expect(await embed(second)).toEqual(expected);
      await second.close();
      await first.close();
    }
  });

  test("of several models open and close in any order", async () => {
    const forms = await Promise.all([form("fp32"), form("int8")]);
    const [one, two] = await Promise.all(
      forms.map(({ modelPath, sharing }) => open(modelPath, sharing)),
    );
    const expected = await embed(two!);
    await one!.close();
    const third = await open(forms[0]!.modelPath, forms[0]!.sharing);
    expect(await embed(two!)).toEqual(expected);
    await two!.close();
    expect(await embed(third)).toHaveLength(images.length * embeddingDims);
    await third.close();
  });

  test("do not open where an output has another size, and leave nothing mapped", async () => {
    const { modelPath, sharing } = await form();
    const outputs = sharing.outputs.map((output) => ({ ...output, shape: [1, embeddingDims] }));
    await expect(open(modelPath, { ...sharing, outputs })).rejects.toThrow(
      "the first dimension of output 'embedding' must be dynamic",
    );
    expect(await readFile("/proc/self/maps", "utf8")).not.toContain(sharing.weights.file);
  });

  test("fail a run that the runtime refuses, and go on", async () => {
    const { modelPath, sharing } = await form();
    const session = await open(modelPath, sharing);
    const [{ name, dataType }] = openclipVitB32U8.inputs;
    const wrong = { name, dataType, shape: [1, 2, 2, 3], data: new Uint8Array(12) };
    await expect(session.run([wrong])).rejects.toThrow(/^\[failed\] [^\n]*Got invalid dimensions/);
    expect(await embed(session)).toHaveLength(images.length * embeddingDims);
    await session.close();
  });

  test("do not open where the weights are not what the model says, in one line", async () => {
    const { modelPath, sharing } = await form();
    const cut = join(folder, "cut.bin");
    await writeFile(cut, "some weights");
    const weights = { ...sharing.weights, file: cut };
    await expect(open(modelPath, { ...sharing, weights })).rejects.toThrow(
      `[model] ${modelPath}: cannot be loaded: ${cut}: is cut short`,
    );
    const [one, ...others] = sharing.weights.initializers;
    const longer = { ...one!, dims: [...one!.dims, 2] };
    const initializers = [longer, ...others];
    await expect(
      open(modelPath, { ...sharing, weights: { ...sharing.weights, initializers } }),
    ).rejects.toThrow(/^\[model\] \S+: cannot be loaded: [^\n]*not enough space[^\n]*$/);
    const missing = { ...sharing.weights, file: join(folder, "none.bin") };
    await expect(open(modelPath, { ...sharing, weights: missing })).rejects.toThrow(
      /^\[model\] \S+: cannot be loaded: ENOENT[^\n]*none\.bin'$/,
    );
  });

  test("let the process end with its own code while the model runs", async () => {
    const { modelPath } = await form();
    const url = (file: string) => JSON.stringify(new URL(file, import.meta.url).href);
    const script = `
      import { openSession } from ${url("./onnx-session.ts")};
      import { readSharing } from ${url("../model/model-sharing.ts")};
      const modelPath = ${JSON.stringify(modelPath)};
      const session = await openSession({ modelPath, sharing: readSharing(modelPath) });
      const shape = [256, 224, 224, 3];
      const data = new Uint8Array(256 * ${pixelBytes});
      void session.run([{ name: "image", dataType: "UINT8", shape, data }]);
      setTimeout(() => process.exit(3), 50);`;
    const args = ["--import", "tsx", "--input-type=module", "--eval", script];
    const result = await promisify(execFile)(process.execPath, args).catch((error) => error);
    expect([result.code, result.stderr]).toEqual([3, ""]);
  });
});

describe("readSharing()", () => {
  test("tells inputs, outputs and where each weight lies", async () => {
    const { modelPath, sharing } = await form();
    expect(sharing.inputs).toEqual([
      { name: "image", type: "uint8", shape: [expect.any(String), 224, 224, 3] },
    ]);
    expect(sharing.outputs).toEqual([
      { name: "embedding", type: "float32", shape: [expect.any(String), embeddingDims] },
    ]);
    expect(sharing.weights.file).toBe(join(modelPath, "..", "weights.bin"));
    for (const { dims, length } of sharing.weights.initializers) {
      expect(length).toBe(4 * dims.reduce((product, dim) => product * dim, 1));
    }
  });

  test("does not share weights that are in the model file itself", async () => {
    expect(readSharing(await tinyModel())).toBeUndefined();
  });
});
