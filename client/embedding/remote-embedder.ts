/** Service that embeds images and texts. Throws only {@link ClientError}, with indices counted from the first item of the call. */
export interface RemoteEmbedder {
  /** Address for messages: `http://host:port`, or `host:port` for gRPC. */
  readonly target: string;
  /**
   * @param images - 1 to 32 JPEG, PNG or WebP files.
   * @returns One vector of the model's width with unit L2 norm per image.
   */
  embed(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  /**
   * @param texts - 1 to 32.
   * @returns One vector of the model's width with unit L2 norm per text.
   */
  embedText(texts: readonly string[]): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}
