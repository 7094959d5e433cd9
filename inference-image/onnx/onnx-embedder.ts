import { imagePixels, imageTowerOf, textTowerOf } from "../../contract/model-shapes.ts";
import type { ImageTower } from "../../contract/model-spec.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { BatchTrace, type RequestTrace } from "../../http/request-trace.ts";
import { imageTensor, pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { Batcher, type Execution } from "../../inference/session/batcher.ts";
import { embeddingsOf } from "../../inference/session/embeddings.ts";
import { type TokenRow, tokenRows, tokenTensor } from "../../inference/session/token-tensor.ts";
import type { InferOptions } from "../../inference/session/types.ts";
import type { EncodedTexts } from "../../inference/text/tokenizer.ts";
import type {
  EmbedderObserver,
  EmbedOptions,
  ImageEmbedder,
  TextEmbedder,
  TowerEmbedder,
} from "../models/embedder.ts";
import type { ServerModel } from "./server-model.ts";

export interface OnnxEmbedderOptions {
  /** Maximum batch size in addition to the model's. @default - the model's */
  readonly maxBatchSize?: number | undefined;
  readonly maxQueueDelayMicroseconds: number;
  readonly observer?: EmbedderObserver;
  readonly fingerprint?: string | undefined;
}

/** Embeds images with ONNX Runtime in this process, with dynamic batching. The embedder closes the model. */
export function createOnnxEmbedder(
  model: ServerModel,
  options: OnnxEmbedderOptions,
): ImageEmbedder {
  const tower = imageTowerOf(model.spec);
  const toInput = model.session.inputs[0]!.dataType === "UINT8" ? uint8Input : fp32Input;
  return new OnnxEmbedder<readonly Uint8Array[], Uint8Array>(model, options, {
    output: tower.output,
    itemsOf: (images) => images,
    toInput: (images) => toInput(tower, images),
  });
}

/** Embeds token ids with ONNX Runtime in this process, as {@link createOnnxEmbedder}. */
export function createOnnxTextEmbedder(
  model: ServerModel,
  options: OnnxEmbedderOptions,
): TextEmbedder {
  const tower = textTowerOf(model.spec);
  return new OnnxEmbedder<EncodedTexts, TokenRow>(model, options, {
    output: tower.output,
    itemsOf: tokenRows,
    toInput: (rows) => ({ tensor: tokenTensor(tower, rows), inputs: "transferred" }),
  });
}

/** Input of one execution. */
interface ModelInput {
  readonly tensor: Tensor;
  /** As in {@link InferOptions}: `copied` if the tensor shares the memory of the caller. */
  readonly inputs: NonNullable<InferOptions["inputs"]>;
}

interface OnnxTower<Input, Item> {
  /** Name of the output with the embeddings. */
  readonly output: string;
  itemsOf(input: Input): readonly Item[];
  toInput(items: readonly Item[]): ModelInput;
}

class OnnxEmbedder<Input, Item> implements TowerEmbedder<Input> {
  readonly fingerprint: string | undefined;
  readonly #model: ServerModel;
  readonly #tower: OnnxTower<Input, Item>;
  readonly #batcher: Batcher;

  constructor(
    model: ServerModel,
    { maxQueueDelayMicroseconds, observer, ...options }: OnnxEmbedderOptions,
    tower: OnnxTower<Input, Item>,
  ) {
    const { maximum } = model.spec.batching;
    this.fingerprint = options.fingerprint;
    this.#model = model;
    this.#tower = tower;
    this.#batcher = new Batcher(model.session, {
      maxBatchSize: Math.min(maximum, options.maxBatchSize ?? maximum),
      maxQueueDelayMicroseconds,
      dispatch: "eager",
      onExecution: (execution) => {
        traceBatch(model.spec.name, execution);
        const { batchSize, requests, inferUs, error } = execution;
        if (error !== undefined) return;
        observer?.onBatch({ items: batchSize, inferSeconds: inferUs / 1e6 });
        for (const { timing } of requests) observer?.onDequeue(timing.queueUs / 1e6);
      },
    });
  }

  get waitingItems(): number {
    return this.#batcher.queuedItems;
  }

  announce(): () => void {
    return this.#batcher.announce();
  }

  async ready(): Promise<boolean> {
    return this.#model.alive;
  }

  /** Embeds items in parts of at most the maximum batch size. */
  async embed(
    input: Input,
    { signal, onTiming, order, trace }: EmbedOptions = {},
  ): Promise<readonly Float32Array[]> {
    const { session, spec, modality } = this.#model;
    const items = this.#tower.itemsOf(input);
    const parts: Promise<readonly Float32Array[]>[] = [];
    const longest = { queueSeconds: 0, inferSeconds: 0 };
    const partSize = Math.min(
      this.#batcher.maxBatchSize,
      Math.ceil(items.length / (session.instances ?? 1)),
    );
    for (let first = 0; first < items.length; first += partSize) {
      const part = items.slice(first, first + partSize);
      const { tensor, inputs } = this.#tower.toInput(part);
      parts.push(
        this.#batcher
          .infer([tensor], { signal, inputs, order, caller: trace })
          .then(({ outputs, timing }) => {
            longest.queueSeconds = Math.max(longest.queueSeconds, timing.queueUs / 1e6);
            longest.inferSeconds = Math.max(longest.inferSeconds, timing.computeInferUs / 1e6);
            const output = outputs.find(({ name }) => name === this.#tower.output);
            const { width } = spec.embedding;
            return embeddingsOf(output, { count: part.length, width, first, modality });
          }),
      );
    }
    const vectors = (await Promise.all(parts)).flat();
    onTiming?.(longest);
    return vectors;
  }

  async close(): Promise<void> {
    await this.#batcher.drain();
    await this.#model.session.close();
  }
}

/** Adds an execution that has ended to the traces of its requests. */
function traceBatch(model: string, { batchSize, requests, error }: Execution): void {
  const [first] = requests;
  if (requests.every(({ caller }) => caller === undefined) || first === undefined) return;
  const { computeInputUs, computeInferUs, computeOutputUs } = first.timing;
  const durationMs = (computeInputUs + computeInferUs + computeOutputUs) / 1000;
  const startedAt = performance.now() - durationMs;
  const items = requests.map(({ caller, timing }) => ({
    trace: caller as RequestTrace | undefined,
    enqueuedAt: startedAt - timing.queueUs / 1000,
  }));
  const attributes = { "clipstack.model": model, "clipstack.batch.items": batchSize };
  BatchTrace.begin(items, startedAt, attributes)?.end(error);
}

/** Concatenates several images. A single image is passed on, because the batcher copies it. */
function uint8Input(tower: ImageTower, images: readonly Uint8Array[]): ModelInput {
  const [image] = images;
  if (images.length !== 1 || image === undefined) {
    return { tensor: pixelTensor(images, tower), inputs: "transferred" };
  }
  const { name, dims } = imagePixels(tower);
  return {
    tensor: { name, dataType: "UINT8", shape: [1, ...dims], data: image },
    inputs: "copied",
  };
}

function fp32Input(tower: ImageTower, images: readonly Uint8Array[]): ModelInput {
  return { tensor: imageTensor(images, tower), inputs: "transferred" };
}
