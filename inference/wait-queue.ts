/** Conditions that remove a waiting entry of a {@link WaitQueue}. */
export interface WaitLimits {
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

/** Reason for which a waiting entry was removed. */
export type Expiry = "aborted" | "timeout";

/**
 * First-in-first-out queue of requests that wait for a resource. Entries are removed when their signal is aborted or their timeout
 * passes. Queue libraries (p-queue, fastq) run tasks up to a concurrency; here the owner decides, by the size of the oldest
 * entries, when and how many start together.
 */
export class WaitQueue<T extends object> implements Iterable<T> {
  /** Entries in order of arrival; the value removes the timer and the abort listener. */
  readonly #entries = new Map<T, () => void>();

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
    { signal, timeoutMs }: WaitLimits = {},
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
    this.#entries.set(entry, () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    });
  }

  shift(): T | undefined {
    const { first } = this;
    if (first !== undefined) this.delete(first);
    return first;
  }

  /** Removes an entry and returns whether it was waiting. */
  delete(entry: T): boolean {
    this.#entries.get(entry)?.();
    return this.#entries.delete(entry);
  }
}
