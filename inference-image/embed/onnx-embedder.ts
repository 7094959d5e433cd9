import {
  embeddingTensor,
  imagePixels,
  imageTowerOf,
  textTowerOf,
} from "../../contract/model-shapes.ts";
import type { ImageTower } from "../../contract/model-spec.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { Batcher } from "../../inference/session/batcher.ts";
import { embeddingsOf } from "../../inference/session/embeddings.ts";
import { tokenRows, tokenTensor } from "../../inference/session/token-tensor.ts";
import type { InferOptions } from "../../inference/session/types.ts";
import type { EmbedderObserver, EmbedOptions, ImageEmbedder, TextEmbedder } from "./embedder.ts";
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
  const batches = new TowerBatches(model, embeddingTensor(model.spec, tower).name, options);
  const toInput = model.session.inputs[0]!.dataType === "UINT8" ? uint8Input : fp32Input;
  return {
    embed: (images, embedOptions) =>
      batches.embed(
        images.length,
        (first, end) => toInput(tower, images.slice(first, end)),
        embedOptions,
      ),
    announce: () => batches.batcher.announce(),
    fingerprint: options.fingerprint,
    ready: async () => model.alive,
    get waitingImages() {
      return batches.batcher.queuedItems;
    },
    close: () => batches.close(),
  };
}

/** Embeds token ids with ONNX Runtime in this process, as {@link createOnnxEmbedder}. */
export function createOnnxTextEmbedder(
  model: ServerModel,
  options: OnnxEmbedderOptions,
): TextEmbedder {
  const tower = textTowerOf(model.spec);
  const batches = new TowerBatches(model, tower.output, options);
  return {
    embed(encoded, embedOptions) {
      const rows = tokenRows(encoded);
      const inputOf = (first: number, end: number): ModelInput => ({
        tensor: tokenTensor(tower, rows.slice(first, end)),
        inputs: "transferred",
      });
      return batches.embed(rows.length, inputOf, embedOptions);
    },
    fingerprint: options.fingerprint,
    ready: async () => model.alive,
    get waitingTexts() {
      return batches.batcher.queuedItems;
    },
    close: () => batches.close(),
  };
}

/** Input of one execution. */
export interface ModelInput {
  readonly tensor: Tensor;
  /** As in {@link InferOptions}: `copied` if the tensor shares the memory of the caller. */
  readonly inputs: NonNullable<InferOptions["inputs"]>;
}

/** Dynamic batching of one tower. */
export class TowerBatches {
  readonly batcher: Batcher;
  readonly #model: ServerModel;
  readonly #output: string;

  /** @param output - Name of the output with the embeddings. */
  constructor(model: ServerModel, output: string, options: OnnxEmbedderOptions) {
    const { maxQueueDelayMicroseconds, observer } = options;
    const { maximum } = model.spec.batching;
    this.#model = model;
    this.#output = output;
    this.batcher = new Batcher(model.session, {
      maxBatchSize: Math.min(maximum, options.maxBatchSize ?? maximum),
      maxQueueDelayMicroseconds,
      dispatch: "eager",
      onExecution: ({ batchSize, requests, inferUs, error }) => {
        if (error !== undefined) return;
        observer?.batch({ items: batchSize, inferSeconds: inferUs / 1e6 });
        for (const { timing } of requests) observer?.queued(timing.queueUs / 1e6);
      },
    });
  }

  /**
   * Embeds items in parts of at most the maximum batch size.
   *
   * @param inputOf - Returns the input for the items `first` to `end`, exclusive.
   */
  async embed(
    count: number,
    inputOf: (first: number, end: number) => ModelInput,
    { signal, onTiming, order }: EmbedOptions = {},
  ): Promise<readonly Float32Array[]> {
    const { session, spec, modality } = this.#model;
    const parts: Promise<readonly Float32Array[]>[] = [];
    const longest = { queueSeconds: 0, inferSeconds: 0 };
    const partSize = Math.min(
      this.batcher.maxBatchSize,
      Math.ceil(count / (session.instances ?? 1)),
    );
    for (let first = 0; first < count; first += partSize) {
      const end = Math.min(count, first + partSize);
      const { tensor, inputs } = inputOf(first, end);
      parts.push(
        this.batcher.infer([tensor], { signal, inputs, order }).then(({ outputs, timing }) => {
          longest.queueSeconds = Math.max(longest.queueSeconds, timing.queueUs / 1e6);
          longest.inferSeconds = Math.max(longest.inferSeconds, timing.computeInferUs / 1e6);
          const output = outputs.find(({ name }) => name === this.#output);
          const rows = { count: end - first, width: spec.embedding.width, first, modality };
          return embeddingsOf(output, rows);
        }),
      );
    }
    const vectors = (await Promise.all(parts)).flat();
    onTiming?.(longest);
    return vectors;
  }

  /** Finishes accepted items, then closes the model. */
  async close(): Promise<void> {
    await this.batcher.drain();
    await this.#model.session.close();
  }
}

/** Copies each image once: several images here, a single one in the batcher. */
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
