/** Lets images be decoded side by side as long as their pixels stay within a limit. First come, first served. */
export class PixelBudget {
  #held = 0;
  readonly #waiting: { readonly pixels: number; readonly limit: number; go(): void }[] = [];

  /**
   * Wait for a place, then work. One image is always let in, however large.
   *
   * @param signal - gives the place up while it is waited for
   */
  async during<T>(
    pixels: number,
    limit: number,
    work: () => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    await this.#enter(pixels, limit, signal);
    try {
      return await work();
    } finally {
      this.#held -= pixels;
      this.#next();
    }
  }

  #enter(pixels: number, limit: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.splice(this.#waiting.indexOf(place), 1);
        reject(signal?.reason);
        this.#next();
      };
      const go = () => {
        signal?.removeEventListener("abort", leave);
        resolve();
      };
      const place = { pixels, limit, go };
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      signal?.addEventListener("abort", leave, { once: true });
      this.#waiting.push(place);
      this.#next();
    });
  }

  #next(): void {
    for (;;) {
      const [first] = this.#waiting;
      if (first === undefined) return;
      if (this.#held > 0 && this.#held + first.pixels > first.limit) return;
      this.#waiting.shift();
      this.#held += first.pixels;
      first.go();
    }
  }
}
