/** Computes embeddings of preprocessed images: ONNX Runtime in this process, or Tritons behind it. */
export interface Embedder {
  /**
   * @param images - `[224, 224, 3]` 8-bit RGB, row-major, as `preprocess` makes them; 1 or more of them.
   * @returns 512 float32 with unit L2 norm for each, in the order of the images.
   * @throws {InferenceError} or {TritonError}
   */
  embed(images: readonly Uint8Array[], options?: EmbedOptions): Promise<readonly Float32Array[]>;
  /**
   * Say that images are being decoded, so that a batch may wait for them.
   *
   * @returns Call it once they are passed to `embed()`, or when they will not come.
   */
  announce(): () => void;
  /** Whether it can compute now. False, not an error, when it cannot. */
  ready(): Promise<boolean>;
  /** Why it cannot, in one line, where that is known. */
  readonly unavailableReason?: string;
  /**
   * What `embed()` takes. `encoded`: the files as they are, since the model behind reads them itself.
   *
   * @default "pixels"
   */
  readonly input?: "pixels" | "encoded";
  /** Images that were passed to `embed()` and wait for their turn. */
  readonly waitingImages: number;
  /** Answers what was accepted, then frees everything. */
  close(): Promise<void>;
}

export interface EmbedOptions {
  /** The caller went away: what has not begun is dropped. */
  readonly signal?: AbortSignal;
  /** Told of each part once it is computed. */
  readonly onTiming?: (timing: EmbedTiming) => void;
}

/** Where the time of one call went, in seconds. */
export interface EmbedTiming {
  /** Waiting for its batch; 0 where that is not known. */
  readonly queueSeconds: number;
  /** The execution that it was part of; the whole call to a Triton. */
  readonly inferSeconds: number;
}

/** Told of each execution of the model. */
export interface EmbedderObserver {
  batch(batch: { readonly images: number; readonly inferSeconds: number }): void;
  /** How long a request waited for its batch. */
  queued(seconds: number): void;
}
