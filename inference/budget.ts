import { WaitQueue } from "./wait-queue.ts";

interface Claim {
  readonly amount: number;
  readonly granted: () => void;
}

/**
 * Limit of what work in progress may hold together, such as decoded pixels. First in, first out; a claim that exceeds the limit
 * by itself is granted once nothing else is held.
 */
export class Budget {
  readonly #limit: number;
  readonly #queue = new WaitQueue<Claim>();
  #held = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Calls `granted` as soon as `amount` more fits, which may be at once.
   *
   * @returns Gives the amount back, or gives up waiting for it. Call it once.
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

  /** Waits until `amount` more fits, and holds it while `work` runs. */
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
