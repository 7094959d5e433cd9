/** Backend of the embed server: ONNX Runtime in this process, or Tritons behind a gateway. */
export interface Embedder {
  /**
   * Embeds preprocessed images.
   *
   * @param images - One or more, each `[224, 224, 3]` 8-bit RGB, row-major; or image files, if `input` is `encoded`.
   * @returns 512 float32 per image with unit L2 norm, in order.
   * @throws {InferenceError} or {TritonError}
   */
  embed(images: readonly Uint8Array[], options?: EmbedOptions): Promise<readonly Float32Array[]>;
  /**
   * Announces images that are being decoded, so that a batch may wait for them.
   *
   * @returns Function to call once they are passed to `embed()` or have failed to decode.
   */
  announce(): () => void;
  /** Returns whether it can embed now; false, not an error, if it cannot. */
  ready(): Promise<boolean>;
  /** One-line reason for which it cannot embed, if known. */
  readonly unavailableReason?: string;
  /**
   * Input of `embed()`. `encoded`: image files, which the model decodes.
   *
   * @default "pixels"
   */
  readonly input?: "pixels" | "encoded";
  /** Number of images that were passed to `embed()` and wait for execution. */
  readonly waitingImages: number;
  /** Finishes accepted images, then frees all resources. */
  close(): Promise<void>;
}

export interface EmbedOptions {
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

/** Observer of the model's executions. */
export interface EmbedderObserver {
  batch(batch: { readonly images: number; readonly inferSeconds: number }): void;
  /** Reports the time for which a request waited for its batch. */
  queued(seconds: number): void;
}
