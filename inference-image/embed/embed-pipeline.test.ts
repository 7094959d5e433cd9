import { expect, test } from "vitest";
import { embeddingTensor, imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { Tensor } from "../../contract/tensor.ts";
import type { Preprocessor } from "../../inference/preprocess/preprocess.ts";
import type { ModelSession, RunResult } from "../../inference/session/types.ts";
import { createMetrics } from "../models/metrics.ts";
import type { ImageModel, ServedModels } from "../models/served-models.ts";
import { createOnnxEmbedder } from "../onnx/onnx-embedder.ts";
import { EmbedPipeline } from "./embed-pipeline.ts";

const tower = imageTowerOf(defaultModel);
const { width, height } = tower.input.size;

/** Preprocessor whose images are decoded when the test decides; the file's first byte is the level of all pixels. */
class HeldPreprocessor implements Preprocessor {
  readonly #held = new Map<number, () => void>();

  run(bytes: Uint8Array): Promise<Uint8Array> {
    const level = bytes[0]!;
    return new Promise((resolve) => {
      this.#held.set(level, () => resolve(new Uint8Array(3 * width * height).fill(level)));
    });
  }

  decode(level: number): void {
    this.#held.get(level)!();
  }

  recycle(): void {}
  async close(): Promise<void> {}
}

/** Session whose runs end when the test decides. */
class HeldSession implements ModelSession {
  readonly inputs = [normalisedImage(tower)];
  readonly outputs = [embeddingTensor(defaultModel, tower)];
  /** Number of images of each run, and the first value of each image, in order of the runs. */
  readonly runs: number[][] = [];
  readonly #held: (() => void)[] = [];

  constructor(readonly instances: number) {}

  run([input]: readonly Tensor[]): Promise<RunResult> {
    const count = input!.shape[0]!;
    const data = input!.data as Float32Array;
    const values = Array.from({ length: count }, (_, row) => data[(row * data.length) / count]!);
    this.runs.push(values.map(levelOf));
    const { name, dims } = this.outputs[0]!;
    const output: Tensor = {
      ...{ name, dataType: "FP32", shape: [count, dims[0]!] },
      data: new Float32Array(count * dims[0]!).fill(1),
    };
    return new Promise((resolve) =>
      this.#held.push(() => resolve({ outputs: [output], inferUs: 1 })),
    );
  }

  /** Ends the oldest run. */
  end(): void {
    this.#held.shift()!();
  }

  async close(): Promise<void> {}
}

const { mean, std } = tower.input;
const levelOf = (value: number) => Math.round((value * std[0] + mean[0]) * 255);

function open({ instances = 1, maxBatchSize = 1 } = {}) {
  const [session, preprocessor] = [new HeldSession(instances), new HeldPreprocessor()];
  const embedder = createOnnxEmbedder(
    { session, spec: defaultModel, modality: "image", alive: true } as never,
    { maxBatchSize, maxQueueDelayMicroseconds: 0 },
  );
  const models = { waitingItems: 0 } as unknown as ServedModels;
  const pipeline = new EmbedPipeline({ models, preprocessor, metrics: createMetrics() });
  const model = { spec: defaultModel, embedder } as ImageModel;
  const signal = new AbortController().signal;
  const answered: number[] = [];
  const send = async (level: number) => {
    await pipeline.images(model, [Uint8Array.of(level)], { signal, file: "copied" });
    answered.push(level);
  };
  return { session, preprocessor, embedder, send, answered };
}

/** Waits for a condition that follows from events that have already happened. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise(setImmediate);
}

test("no request is overtaken by a later one whose image was decoded first", async () => {
  const { session, preprocessor, embedder, send, answered } = open();
  const requests = [1, 2, 3, 4].map(send);
  preprocessor.decode(1);
  await until(() => session.runs.length === 1);
  // the model is busy while the others are decoded in reverse
  for (const level of [4, 3, 2]) {
    preprocessor.decode(level);
    await until(() => embedder.waitingItems === 5 - level);
  }
  for (const count of [2, 3, 4]) {
    session.end();
    await until(() => session.runs.length === count);
  }
  session.end();
  await Promise.all(requests);
  expect(session.runs).toEqual([[1], [2], [3], [4]]);
  expect(answered).toEqual([1, 2, 3, 4]);
});

test("batches on several instances start in the order of arrival", async () => {
  const { session, preprocessor, embedder, send } = open({ instances: 2, maxBatchSize: 2 });
  const requests = [1, 2, 3, 4, 5, 6].map(send);
  for (const level of [1, 2]) {
    preprocessor.decode(level);
    await until(() => session.runs.length === level);
  }
  for (const [waiting, level] of [5, 6, 3, 4].entries()) {
    preprocessor.decode(level);
    await until(() => embedder.waitingItems === waiting + 1);
  }
  for (const count of [3, 4]) {
    session.end();
    await until(() => session.runs.length === count);
  }
  for (const _ of [1, 2]) session.end();
  await Promise.all(requests);
  expect(session.runs).toEqual([[1], [2], [3, 4], [5, 6]]);
});

test("does not delay a decoded request for an earlier one that is still being decoded", async () => {
  const { session, preprocessor, send, answered } = open();
  const [first, second] = [send(1), send(2)];
  preprocessor.decode(2);
  await until(() => session.runs.length === 1);
  session.end();
  await second;
  preprocessor.decode(1);
  await until(() => session.runs.length === 2);
  session.end();
  await first;
  expect(answered).toEqual([2, 1]);
});
