import { WaitQueue } from "./wait-queue.ts";

interface Claim {
  readonly amount: number;
  readonly granted: () => void;
}

/**
 * Limit of a resource shared by concurrent work, such as decoded pixels in memory. First in, first out; a claim above the limit
 * is granted once nothing else is held.
 */
export class Budget {
  readonly #limit: number;
  readonly #queue = new WaitQueue<Claim>();
  #held = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Calls `granted` once `amount` is available, possibly before it returns.
   *
   * @returns Releases the amount, or cancels the claim. Call it once.
   */
  acquire(amount: number, granted: () => void): () => void {
    const claim = { amount, granted };
    this.#queue.push(claim);
    this.#admit();
    return () => {
      if (!this.#queue.delete(claim)) this.#held -= amount;
      this.#admit();
    };
  }

  /** Holds `amount` while `work` runs. */
  async during<T>(amount: number, work: () => Promise<T>): Promise<T> {
    let release = () => {};
    await new Promise<void>((granted) => {
      release = this.acquire(amount, granted);
    });
    try {
      return await work();
    } finally {
      release();
    }
  }

  #admit(): void {
    for (;;) {
      const { first } = this.#queue;
      if (first === undefined) return;
      if (this.#held > 0 && this.#held + first.amount > this.#limit) return;
      this.#queue.shift();
      this.#held += first.amount;
      first.granted();
    }
  }
}
