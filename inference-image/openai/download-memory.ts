interface Claim {
  readonly request: object;
  readonly bytes: number;
  readonly granted: () => void;
}

/**
 * Memory for the downloaded images of all requests. A request claims it per image, once the size is known, and releases it as a whole.
 * If every request that holds memory waits for more, the oldest of them exceeds the limit, because none could end otherwise.
 */
export class DownloadMemory {
  readonly #limit: number;
  #waiting: Claim[] = [];
  /** Bytes held by each request, the oldest first. */
  readonly #held = new Map<object, number>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Waits for memory. Rejects with the reason of the signal. */
  async claim(request: object, bytes: number, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    let onAbort = () => {};
    try {
      await new Promise<void>((granted, reject) => {
        const claim = { request, bytes, granted };
        onAbort = () => {
          this.#waiting = this.#waiting.filter((other) => other !== claim);
          reject(signal.reason);
          this.#grant();
        };
        signal.addEventListener("abort", onAbort, { once: true });
        this.#waiting.push(claim);
        this.#grant();
      });
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Releases the memory of a request. */
  release(request: object): void {
    this.#held.delete(request);
    this.#grant();
  }

  #grant(): void {
    for (;;) {
      const claim = this.#next();
      if (claim === undefined) return;
      this.#waiting = this.#waiting.filter((other) => other !== claim);
      this.#held.set(claim.request, (this.#held.get(claim.request) ?? 0) + claim.bytes);
      claim.granted();
    }
  }

  /** Returns the claim to grant next: of the oldest request that holds memory, because it then ends soonest, or of the first request. */
  #next(): Claim | undefined {
    const holders = [...this.#held.keys()];
    const ofHolders = holders.map((holder) =>
      this.#waiting.find(({ request }) => request === holder),
    );
    const claim = ofHolders.find((waiting) => waiting !== undefined) ?? this.#waiting[0];
    if (claim === undefined) return undefined;
    const total = [...this.#held.values()].reduce((sum, bytes) => sum + bytes, 0);
    const allWait = ofHolders.every((waiting) => waiting !== undefined);
    return total + claim.bytes <= this.#limit || allWait ? claim : undefined;
  }
}
