import { sha256 } from "../../contract/fingerprint.ts";
import type { PixelInput } from "../../contract/model-spec.ts";
import { readImageHeader } from "../../inference/preprocess/image-header.ts";
import { ImageError, type Preprocessor } from "../../inference/preprocess/preprocess.ts";
import { InvalidEmbeddingError } from "../../inference/session/embeddings.ts";
import { Budget } from "../../inference/threads/budget.ts";
import { InferenceError } from "../../inference/threads/inference-error.ts";
import { isTransferable } from "../../inference/threads/transferable.ts";
import { StoreError } from "../store/store.ts";
import type { EmbeddedImage } from "../table/part.ts";
import type { BatchEmbedder } from "./embedder.ts";

/** Image to embed. */
export interface PipelineImage {
  /** Size of the file in bytes; 0 if unknown. */
  readonly bytes: number;
  read(): Promise<Uint8Array>;
}

export type ImageResult = Omit<EmbeddedImage, "uri" | "etag"> & { readonly bytes: number };
export interface ImageProblem {
  readonly code: string;
  readonly reason: string;
}

export interface PipelineOptions {
  readonly embedder: BatchEmbedder;
  readonly preprocessor: Preprocessor;
  readonly input: PixelInput;
  /** Memory for files and model input; decoded images have the budget of the preprocessor. */
  readonly memoryBytes: number;
  /** Files that are read concurrently. */
  readonly reads: number;
}

interface Decoded extends Omit<ImageResult, "embedding"> {
  readonly pixels: Uint8Array;
  settle(result: ImageResult | ImageProblem): void;
  release(): void;
}

/** Maximum time for which a decoded image waits for a full batch while the model is idle. */
const maxWaitMs = 200;

/** Reads, decodes and embeds images concurrently, in batches and within a limit of memory. */
export class Pipeline {
  readonly #options: PipelineOptions;
  readonly #memory: Budget;
  readonly #reads: Budget;
  readonly #ready: Decoded[] = [];
  /** Assumed size of a file whose size is unknown: that of the largest so far. */
  #unknownBytes = 1024 * 1024;
  #preparing = 0;
  #running = 0;
  #timer: NodeJS.Timeout | undefined;
  #fail: (error: unknown) => void = () => {};
  /** Rejects with the first error that concerns more than one image. No image is settled afterwards. */
  readonly failed: Promise<never>;

  constructor(options: PipelineOptions) {
    this.#options = options;
    this.#memory = new Budget(options.memoryBytes);
    this.#reads = new Budget(options.reads);
    this.failed = new Promise((_, reject) => {
      this.#fail = reject;
    });
    this.failed.catch(() => {});
  }

  /**
   * Resolves once the image fits in memory.
   *
   * @param settle - Called once with the result, after `add` has resolved.
   */
  async add(image: PipelineImage, settle: Decoded["settle"]): Promise<void> {
    const { inputBytes } = this.#options.embedder;
    // 8-bit pixels have a quarter of the size of the input
    const bytes = (image.bytes || this.#unknownBytes) + 1.25 * inputBytes;
    let release = () => {};
    await new Promise<void>((granted) => {
      release = this.#memory.acquire(bytes, granted);
    });
    this.#preparing += 1;
    this.#decode(image)
      .then((decoded) => this.#ready.push({ ...decoded, settle, release }))
      .catch((error: unknown) => {
        release();
        const problem = problemOf(error);
        if (problem === undefined) this.#fail(error);
        else settle(problem);
      })
      .finally(() => {
        this.#preparing -= 1;
        this.#startBatches(false);
      });
  }

  async #decode(image: PipelineImage): Promise<Omit<Decoded, "settle" | "release">> {
    const { preprocessor, input } = this.#options;
    const content = await this.#reads.during(1, () => image.read());
    if (image.bytes === 0) this.#unknownBytes = Math.max(this.#unknownBytes, content.length);
    const facts = { sha256: sha256(content), ...displayedSize(content), bytes: content.length };
    const file = isTransferable(content) ? "transferred" : "copied";
    return { ...facts, pixels: await preprocessor.run(content, input, { file }) };
  }

  /** @param isOverdue - Whether the oldest decoded image has waited for {@link maxWaitMs}. */
  #startBatches(isOverdue: boolean): void {
    const { maxBatchSize, concurrency } = this.#options.embedder;
    clearTimeout(this.#timer);
    while (this.#ready.length > 0 && this.#running < concurrency) {
      const isFull = this.#ready.length >= maxBatchSize;
      const isIdle = this.#running === 0 && (isOverdue || this.#preparing === 0);
      if (!isFull && !isIdle) {
        this.#timer = setTimeout(() => this.#startBatches(true), maxWaitMs);
        return;
      }
      void this.#embed(this.#ready.splice(0, maxBatchSize));
    }
  }

  async #embed(batch: readonly Decoded[]): Promise<void> {
    const { embedder, preprocessor } = this.#options;
    this.#running += 1;
    try {
      let images = batch;
      while (images.length > 0) {
        try {
          const embeddings = await embedder.embed(images.map(({ pixels }) => pixels));
          for (const [index, { settle, pixels: _, release: __, ...facts }] of images.entries()) {
            settle({ ...facts, embedding: embeddings[index]! });
          }
          break;
        } catch (error) {
          if (!(error instanceof InvalidEmbeddingError)) throw error;
          images[error.index]!.settle({ code: "invalid_embedding", reason: error.problem });
          images = images.filter((_, index) => index !== error.index);
        }
      }
      for (const { pixels } of batch) preprocessor.recycle(pixels);
    } catch (error) {
      this.#fail(error);
    } finally {
      for (const { release } of batch) release();
      this.#running -= 1;
      this.#startBatches(false);
    }
  }
}

/** Returns width and height as displayed; 0 if the header is invalid, because decoding fails then. */
function displayedSize(content: Uint8Array): { readonly width: number; readonly height: number } {
  try {
    const { width = 0, height = 0, orientation = 1 } = readImageHeader(content) ?? {};
    return orientation >= 5 ? { width: height, height: width } : { width, height };
  } catch {
    return { width: 0, height: 0 };
  }
}

/** Returns the problem of one image; undefined for an error that concerns others too. */
export function problemOf(error: unknown): ImageProblem | undefined {
  // the thread that decoded it died; others continue
  if (error instanceof InferenceError && error.code === "failed") {
    return { code: "undecodable_image", reason: error.problem };
  }
  const isOfImage =
    error instanceof ImageError ||
    (error instanceof StoreError && ["missing", "changed", "denied"].includes(error.code));
  return isOfImage ? { code: error.code, reason: error.message } : undefined;
}
