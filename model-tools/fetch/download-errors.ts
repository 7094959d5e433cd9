/** Failure after which a retry may succeed. */
export class InterruptedDownload extends Error {
  constructor(
    message: string,
    /** Bytes of an earlier download that are kept. */
    readonly kept: number,
    readonly waitMs?: number,
  ) {
    super(message);
  }
}

/** Failure that a retry does not change. */
export class RejectedDownload extends Error {}
