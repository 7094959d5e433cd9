import type { RequestTrace } from "../../http/request-trace.ts";
import type { EncodedTexts } from "../../inference/text/tokenizer.ts";

/** Image or text tower of one model: ONNX Runtime in this process, or Triton servers behind a gateway. */
export interface TowerEmbedder<Input> {
  /**
   * Embeds the items of a request.
   *
   * @returns One vector of the model's width with unit L2 norm per item, in order.
   * @throws {InferenceError} or {TritonError}
   */
  embed(input: Input, options?: EmbedOptions): Promise<readonly Float32Array[]>;
  /** Number of items that were passed to `embed()` and wait for execution. */
  readonly waitingItems: number;
  /** Returns whether the tower can embed now. Never rejects. */
  ready(): Promise<boolean>;
  /** One-line reason for which it cannot embed, if known. */
  readonly unavailableReason?: string | undefined;
  /** Fingerprint of the embeddings; undefined if it is unknown, or differs between the Triton servers. */
  readonly fingerprint?: string | undefined;
  /** Finishes accepted items, then frees all resources. */
  close(): Promise<void>;
}

/** Embeds preprocessed images, each `[height, width, 3]` 8-bit RGB of the model's input size, row-major; or the files that it takes. */
export interface ImageEmbedder extends TowerEmbedder<readonly Uint8Array[]> {
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
  readonly input?: "pixels" | "encoded" | undefined;
  /**
   * Returns whether `embed()` accepts an image file as it is, in place of its pixels.
   *
   * @default - it accepts none if `input` is `pixels`, all if it is `encoded`
   */
  takesFile?(file: Uint8Array): boolean;
}

/** Embeds token ids. */
export type TextEmbedder = TowerEmbedder<EncodedTexts>;

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
  /** Receives the stages `queue` and `infer` of each execution. @default - the request is not traced */
  readonly trace?: RequestTrace | undefined;
  /** Receives the timing after each execution. */
  readonly onTiming?: (timing: EmbedTiming) => void;
}

/** Durations of the stages of one call, in seconds. */
export interface EmbedTiming {
  /** Time in the queue; 0 if unknown. */
  readonly queueSeconds: number;
  /** Time of the execution, or of the call to a Triton server. */
  readonly inferSeconds: number;
}

/** Observer of the executions of one tower. */
export interface EmbedderObserver {
  /** Called after the execution of a batch. */
  onBatch(batch: { readonly items: number; readonly inferSeconds: number }): void;
  /** Called when an item leaves the queue, with the time that it was queued. */
  onDequeue(seconds: number): void;
}
