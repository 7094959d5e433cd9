import type { EncodedTexts } from "../../inference/text/tokenizer.ts";

/** Image or text tower of one model: ONNX Runtime in this process, or Tritons behind a gateway. */
interface TowerEmbedder {
  /** Returns whether it can embed now; false, not an error, if it cannot. */
  ready(): Promise<boolean>;
  /** One-line reason for which it cannot embed, if known. */
  readonly unavailableReason?: string;
  /** Fingerprint of its embeddings; undefined if it is unknown or the Triton servers differ. */
  readonly fingerprint?: string | undefined;
  /** Finishes accepted images or texts, then frees all resources. */
  close(): Promise<void>;
}

export interface ImageEmbedder extends TowerEmbedder {
  /**
   * Embeds preprocessed images.
   *
   * @param images - One or more, each `[height, width, 3]` 8-bit RGB of the model's input size, row-major; or image files, if `input` is
   *   `encoded`.
   * @returns One vector of the model's width with unit L2 norm per image, in order.
   * @throws {InferenceError} or {TritonError}
   */
  embed(images: readonly Uint8Array[], options?: EmbedOptions): Promise<readonly Float32Array[]>;
  /**
   * Announces images that are being decoded, so that a batch may wait for them.
   *
   * @returns Function to call once they are passed to `embed()` or have failed to decode.
   */
  announce(): () => void;
  /**
   * Input of `embed()`. `encoded`: image files, which the model decodes.
   *
   * @default "pixels"
   */
  readonly input?: "pixels" | "encoded";
  /**
   * Returns whether `embed()` accepts an image file as it is, in place of its pixels.
   *
   * @default - it accepts none if `input` is `pixels`, all if it is `encoded`
   */
  takesFile?(file: Uint8Array): boolean;
  /** Number of images that were passed to `embed()` and wait for execution. */
  readonly waitingImages: number;
}

export interface TextEmbedder extends TowerEmbedder {
  /**
   * Embeds token ids.
   *
   * @returns One vector of the model's width with unit L2 norm per text, in order.
   * @throws {InferenceError} or {TritonError}
   */
  embed(texts: EncodedTexts, options?: EmbedOptions): Promise<readonly Float32Array[]>;
  /** Number of texts that were passed to `embed()` and wait for execution. */
  readonly waitingTexts: number;
}

export interface EmbedOptions {
  /**
   * Number of the request in order of arrival. Queued requests are executed in this order, whichever was decoded first.
   *
   * @default - the order of the calls
   */
  readonly order?: number | undefined;
  /**
   * Whether each image is a file that `takesFile` accepted.
   *
   * @default - all images are as `input` states
   */
  readonly areFiles?: readonly boolean[];
  /** Aborted when the client disconnects: images that are still queued are dropped. */
  readonly signal?: AbortSignal;
  /** Receives the timing after each execution. */
  readonly onTiming?: (timing: EmbedTiming) => void;
}

/** Durations of the stages of one call, in seconds. */
export interface EmbedTiming {
  /** Time in the queue; 0 if unknown. */
  readonly queueSeconds: number;
  /** Time of the execution, or of the call to a Triton. */
  readonly inferSeconds: number;
}

/** Observer of the executions of one tower. */
export interface EmbedderObserver {
  batch(batch: { readonly items: number; readonly inferSeconds: number }): void;
  /** Reports the time for which a request waited for its batch. */
  queued(seconds: number): void;
}
