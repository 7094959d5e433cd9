/** Limits on how long an entry of a {@link WaitQueue} waits. */
export interface WaitLimits {
  /** Removes the entry when it is aborted. */
  readonly signal?: AbortSignal;
  /** Removes the entry after this time. */
  readonly timeoutMs?: number;
}

/** Why an entry left its queue before its turn. */
export type Expiry = "aborted" | "timeout";

/**
 * First-in-first-out queue of requests that wait for a resource. Entries are removed when their signal is aborted or their time
 * is up. Queue libraries (p-queue, fastq) run tasks up to a concurrency; here the owner decides when the oldest entries start,
 * by their size, and how many start together.
 */
export class WaitQueue<T extends object> implements Iterable<T> {
  /** In order of arrival, each with the function that removes its timer and its abort listener. */
  readonly #entries = new Map<T, () => void>();

  get length(): number {
    return this.#entries.size;
  }

  /** The oldest entry. */
  get first(): T | undefined {
    return this.#entries.keys().next().value;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#entries.keys();
  }

  /** @param onExpiry - Called after the entry was removed by its limits; at once if its signal is aborted already. */
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

  /** Removes and returns the oldest entry. */
  shift(): T | undefined {
    const { first } = this;
    if (first !== undefined) this.delete(first);
    return first;
  }

  /** @returns Whether the entry was waiting. */
  delete(entry: T): boolean {
    this.#entries.get(entry)?.();
    return this.#entries.delete(entry);
  }
}
