interface Claim {
  readonly pixels: number;
  readonly granted: () => void;
}

/**
 * Limit of the decoded pixels that images hold in memory together. First come, first served; a single image is always admitted.
 */
export class PixelBudget {
  readonly #limit: number;
  readonly #queue: Claim[] = [];
  #held = 0;

  /** @param limit - in pixels */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Calls `granted` as soon as `pixels` more fit, which may be at once.
   *
   * @returns Gives the pixels back, or gives up waiting for them. Call it once.
   */
  acquire(pixels: number, granted: () => void): () => void {
    const claim = { pixels, granted };
    this.#queue.push(claim);
    this.#admit();
    return () => {
      const place = this.#queue.indexOf(claim);
      if (place >= 0) this.#queue.splice(place, 1);
      else this.#held -= pixels;
      this.#admit();
    };
  }

  #admit(): void {
    for (;;) {
      const [first] = this.#queue;
      if (first === undefined) return;
      if (this.#held > 0 && this.#held + first.pixels > this.#limit) return;
      this.#queue.shift();
      this.#held += first.pixels;
      first.granted();
    }
  }
}
