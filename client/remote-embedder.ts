/** Service that embeds images. Throws only {@link ClientError}, with image indices counted from the first image of the call. */
export interface RemoteEmbedder {
  /** Address for messages: `http://host:port`, or `host:port` for gRPC. */
  readonly target: string;
  /**
   * @param images - 1 to 32 JPEG, PNG or WebP files.
   * @returns One vector of 512 float32 with unit L2 norm per image.
   */
  embed(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}
