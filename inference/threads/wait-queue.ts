/** Conditions that remove a waiting entry of a {@link WaitQueue}. */
export interface WaitLimits {
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

export interface WaitOptions extends WaitLimits {
  /**
   * Position relative to the other entries, such as the number of a request in order of arrival. Lower ones are first; equal ones keep
   * their order.
   *
   * @default - that of the last entry
   */
  readonly order?: number | undefined;
}

/** Reason for which a waiting entry was removed. */
export type Expiry = "aborted" | "timeout";

/**
 * First-in-first-out queue of requests that wait for a resource, by order of adding or by a given order. Entries are removed when their signal is aborted or their timeout
 * passes. Queue libraries (p-queue, fastq) run tasks up to a concurrency; here the owner decides, by the size of the oldest
 * entries, when and how many start together.
 */
export class WaitQueue<T extends object> implements Iterable<T> {
  /** Entries in their order; `release` removes the timer and the abort listener. */
  readonly #entries = new Map<T, { readonly order: number; release(): void }>();
  /** Maximum order of the entries that were added. */
  #lastOrder = Number.NEGATIVE_INFINITY;

  get length(): number {
    return this.#entries.size;
  }

  get first(): T | undefined {
    return this.#entries.keys().next().value;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#entries.keys();
  }

  /** @param onExpiry - Called after the limits removed the entry; immediately if its signal is already aborted. */
  push(
    entry: T,
    { signal, timeoutMs, order = this.#lastOrder }: WaitOptions = {},
    onExpiry: (expiry: Expiry) => void = () => {},
  ): void {
    if (signal?.aborted) {
      onExpiry("aborted");
      return;
    }
    const expire = (expiry: Expiry) => {
      this.delete(entry);
      onExpiry(expiry);
    };
    const onAbort = () => expire("aborted");
    const timer =
      timeoutMs === undefined ? undefined : setTimeout(() => expire("timeout"), timeoutMs);
    signal?.addEventListener("abort", onAbort, { once: true });
    const release = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    };
    const later =
      order < this.#lastOrder ? [...this.#entries].filter(([, other]) => other.order > order) : [];
    this.#lastOrder = Math.max(this.#lastOrder, order);
    this.#entries.set(entry, { order, release });
    // a map iterates in the order of insertion
    for (const [other, value] of later) {
      this.#entries.delete(other);
      this.#entries.set(other, value);
    }
  }

  shift(): T | undefined {
    const { first } = this;
    if (first !== undefined) this.delete(first);
    return first;
  }

  /** Removes an entry and returns whether it was waiting. */
  delete(entry: T): boolean {
    this.#entries.get(entry)?.release();
    return this.#entries.delete(entry);
  }
}
