/** A service that embeds. Its errors are {@link ClientError}, with image indices that count from the batch's first. */
export interface RemoteEmbedder {
  /** For messages: `http://host:port`, or `host:port` for gRPC. */
  readonly target: string;
  /**
   * @param images - 1 to 32 encoded images.
   * @returns One unit-norm vector of 512 float32 for each.
   */
  embed(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}
