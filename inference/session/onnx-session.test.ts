import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { promisify } from "node:util";
import type { Worker } from "node:worker_threads";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { imageBytes, imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { elementCount, type Fp32Tensor, type Tensor } from "../../contract/tensor.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { imageTensor } from "../preprocess/image-tensor.ts";
import type { InferenceError } from "../threads/inference-error.ts";
import { openSession } from "./onnx-session.ts";
import { identityModel } from "./test-identity-model.ts";
import type { ModelSession } from "./types.ts";

const embeddingWidth = defaultModel.embedding.width;
const pixelBytes = imageBytes(imageTowerOf(defaultModel), "uint8")!;
const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

/** Started threads, so that a test can terminate them. */
const tower = imageTowerOf(defaultModel);

const workers: Worker[] = [];
const keep = (worker: Worker) => workers.push(worker);
process.on("worker", keep);
afterAll(() => void process.off("worker", keep));

let modelPath: string;
const sessions: ModelSession[] = [];

async function open(options: Partial<Parameters<typeof openSession>[0]> = {}) {
  const session = await openSession({ modelPath, intraOpThreads: 1, ...options });
  sessions.push(session);
  return session;
}

/** Returns a grey image: -1 is black, 1 is white. */
function greyPixels(value: number): Uint8Array {
  return new Uint8Array(pixelBytes).fill(Math.round(127.5 * (value + 1)));
}

async function embed(session: ModelSession, ...values: number[]): Promise<Float32Array> {
  const { outputs } = await session.run([imageTensor(values.map(greyPixels), tower)]);
  return (outputs[0] as Fp32Tensor).data;
}

beforeAll(async () => {
  modelPath = await tinyModel();
});
afterEach(async () => {
  await Promise.all(sessions.splice(0).map((session) => session.close()));
});

test("reads names, types and shapes from the model, without the batch", async () => {
  const session = await open();
  expect(session.inputs).toEqual([{ name: "image", dataType: "FP32", dims: [3, 224, 224] }]);
  expect(session.outputs).toEqual([{ name: "embedding", dataType: "FP32", dims: [512] }]);
});

test("returns the same embedding for an image alone and in a batch", async () => {
  const session = await open();
  const alone = await embed(session, 0.5);
  const batch = await embed(session, -1, 0.5, 1);
  const second = batch.subarray(embeddingWidth, 2 * embeddingWidth);
  expect(Math.max(...alone.map((value, index) => Math.abs(value - second[index]!)))).toBeLessThan(
    1e-4,
  );
});

test("answers concurrent runs in order", async () => {
  const session = await open();
  const answers = await Promise.all([embed(session, 1), embed(session, -1), embed(session, 1)]);
  expect(answers[0]).toEqual(answers[2]);
  expect(answers[0]).not.toEqual(answers[1]);
});

test("does not block the event loop while the model runs", async () => {
  const session = await open();
  let running = true;
  const run = session
    .run([
      imageTensor(
        Array.from({ length: 256 }, () => greyPixels(1)),
        tower,
      ),
    ])
    .finally(() => {
      running = false;
    });
  let turns = 0;
  for (; running; turns++) await nextTurn();
  await run;
  // a run on this thread allows one turn; during one in its own thread this loop never sleeps: about 100,000 turns
  expect(turns).toBeGreaterThan(1_000);
});

test("transfers the memory of its inputs", async () => {
  const session = await open();
  const input = imageTensor([greyPixels(1)], tower);
  await session.run([input]);
  expect(input.data).toHaveLength(0);
});

test("copies an input that is part of a larger buffer", async () => {
  const session = await open();
  const large = new Float32Array(2 * imageElements);
  large.set(imageTensor([greyPixels(1)], tower).data, imageElements);
  const input: Fp32Tensor = {
    name: "image",
    dataType: "FP32",
    shape: [1, 3, 224, 224],
    data: large.subarray(imageElements),
  };
  const { outputs } = await session.run([input]);
  expect((outputs[0] as Fp32Tensor).data).toEqual(await embed(session, 1));
  expect(large).toHaveLength(2 * imageElements);
});

test("answers the runs in flight before it closes and accepts no more", async () => {
  const session = await open();
  const inFlight = embed(session, 1);
  const closed = session.close();
  await expect(embed(session, 1)).rejects.toThrow("[failed] the model is closed");
  await expect(inFlight).resolves.toHaveLength(embeddingWidth);
  await closed;
});

test("fails only the run that the runtime rejects", async () => {
  const session = await open();
  const input: Fp32Tensor = {
    name: "image",
    dataType: "FP32",
    shape: [1, 3, 2, 2],
    data: new Float32Array(12),
  };
  await expect(session.run([input])).rejects.toMatchObject({
    name: "InferenceError",
    code: "failed",
  });
  await expect(embed(session, 1)).resolves.toHaveLength(embeddingWidth);
});

test("fails the runs in flight when the thread exits, and reports it once", async () => {
  const deaths: InferenceError[] = [];
  const session = await open({ onDeath: (error) => deaths.push(error) });
  // an invalid message terminates the thread
  workers.at(-1)!.postMessage(null);
  const messages = await Promise.all(
    [embed(session, 1), embed(session, 1)].map((run) =>
      run.then(
        () => "answered",
        ({ message }: InferenceError) => message,
      ),
    ),
  );
  const ended =
    "[failed] the runtime's thread ended: Cannot read properties of null (reading 'kind')";
  expect(messages).toEqual([ended, ended]);
  await expect(embed(session, 1)).rejects.toThrow(ended);
  expect(deaths.map(({ message }) => message)).toEqual([ended]);
});

test("does not prevent the process from exiting with its code while the model runs", async () => {
  const url = (file: string) => JSON.stringify(new URL(file, import.meta.url).href);
  const script = `
    import { openSession } from ${url("./onnx-session.ts")};
    const session = await openSession({ modelPath: ${JSON.stringify(modelPath)} });
    const shape = [256, 3, 224, 224];
    const data = new Float32Array(256 * 3 * 224 * 224);
    void session.run([{ name: "image", dataType: "FP32", shape, data }]);
    setTimeout(() => process.exit(3), 50);`;
  const args = ["--import", "tsx", "--input-type=module", "--eval", script];
  const result = await promisify(execFile)(process.execPath, args).catch((error) => error);
  expect([result.code, result.stderr]).toEqual([3, ""]);
});

test("does not report an exit when it is closed", async () => {
  const deaths: InferenceError[] = [];
  const session = await open({ onDeath: (error) => deaths.push(error) });
  await session.close();
  expect(deaths).toEqual([]);
});

describe("another model", () => {
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-"));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
  });

  async function openIdentity(...model: Parameters<typeof identityModel>): Promise<ModelSession> {
    const file = join(folder, "model.onnx");
    await writeFile(file, identityModel(...model));
    return open({ modelPath: file });
  }

  test("reports dynamic dimensions as -1", async () => {
    const session = await openIdentity("FP32", ["batch", 3, "width"]);
    expect(session.inputs).toEqual([{ name: "x", dataType: "FP32", dims: [3, -1] }]);
  });

  test("returns outputs of dynamic size", async () => {
    const session = await openIdentity("FP32", ["batch", "width"]);
    const data = Float32Array.of(1, 2, 3, 4, 5, 6);
    const { outputs } = await session.run([{ name: "x", dataType: "FP32", shape: [2, 3], data }]);
    expect(outputs).toEqual([
      { name: "y", dataType: "FP32", shape: [2, 3], data: Float32Array.of(1, 2, 3, 4, 5, 6) },
    ]);
  });

  test("carries UINT8 bit for bit", async () => {
    const session = await openIdentity("UINT8", ["batch", 2]);
    expect(session.inputs).toEqual([{ name: "x", dataType: "UINT8", dims: [2] }]);
    const head = { dataType: "UINT8", shape: [2, 2] } as const;
    const bytes = Uint8Array.of(1, 2, 3, 255);
    const { outputs } = await session.run([{ name: "x", ...head, data: bytes.slice() }]);
    expect(outputs).toEqual([{ name: "y", ...head, data: bytes }]);
  });

  test.each([
    ["INT32", Int32Array.of(-1, 0, 1, 49_407)],
    ["INT64", BigInt64Array.of(-1n, 0n, 1n, 2n ** 62n)],
  ] as const)("carries %s bit for bit", async (dataType, data) => {
    const session = await openIdentity(dataType, ["batch", 2]);
    expect(session.inputs).toEqual([{ name: "x", dataType, dims: [2] }]);
    const shape = [2, 2];
    const input = { name: "x", dataType, shape, data: data.slice() } as Tensor;
    const { outputs } = await session.run([input]);
    expect(outputs).toEqual([{ name: "y", dataType, shape, data }]);
  });

  test("fails if its batch size is fixed", async () => {
    await expect(openIdentity("FP32", [1, 3])).rejects.toThrow(
      "model.onnx: the first dimension of input 'x' must be dynamic (the batch), got [1, 3]",
    );
  });

  test("fails if its data type is unsupported", async () => {
    await expect(openIdentity("DOUBLE", ["batch", 1])).rejects.toThrow(
      "model.onnx: input 'x' has type float64: unsupported",
    );
  });
});

test("fails on a file that does not exist", async () => {
  await expect(openSession({ modelPath: "models/none.onnx" })).rejects.toThrow(
    "[model] models/none.onnx: no such file",
  );
});

test("fails on a folder", async () => {
  await expect(openSession({ modelPath: tmpdir() })).rejects.toThrow(
    `[model] ${tmpdir()}: is not a file`,
  );
});

test("fails on a file that is not a model, in one line", async () => {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-"));
  const file = join(folder, "model.onnx");
  await writeFile(file, "not a model");
  const error: InferenceError = await openSession({ modelPath: file }).then(
    () => expect.fail("it was loaded"),
    (reason) => reason,
  );
  await rm(folder, { recursive: true });
  expect(error.code).toBe("model");
  expect(error.message).toMatch(/^\[model\] \S+model\.onnx: cannot be loaded: \S.*$/);
});
