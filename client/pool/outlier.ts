/** Consecutive failed calls after which an upstream is ejected. */
const maxFailures = 3;
const firstEjectionMs = 5_000;
const maxEjectionMs = 300_000;
/** Consecutive answered calls after which the next ejection has the first duration again. */
const recoveredAfter = 20;

/**
 * Record of an upstream's calls, which ejects it after consecutive failures. Each ejection lasts twice as long as the previous one.
 * Then a single call is due, which readmits the upstream or ejects it again.
 */
export class OutlierRecord {
  /** Whether a call has failed since the last answered one. */
  doubtful = false;
  #failures = 0;
  #successes = 0;
  #ejections = 0;
  /** Start of the current ejection. */
  #ejectedAt: number | undefined;
  #endsAt = 0;
  /** Earliest time of the next attempt. */
  #dueAt = 0;
  #lastSuccessAt = Number.NEGATIVE_INFINITY;

  get ejected(): boolean {
    return this.#ejectedAt !== undefined;
  }

  /** Whether the ejection has lasted long enough for a call to be tried. */
  get isDue(): boolean {
    return this.ejected && performance.now() >= this.#dueAt;
  }

  /** Defers the next attempt, because this one is about to be made. */
  attempt(): void {
    if (this.ejected) this.#dueAt = performance.now() + firstEjectionMs;
  }

  /** @returns Whether the upstream is readmitted. */
  succeeded(startedAt: number): boolean {
    this.#lastSuccessAt = performance.now();
    // a call from before the ejection shows nothing
    if (this.#ejectedAt !== undefined && startedAt < this.#ejectedAt) return false;
    const readmitted = this.ejected;
    this.#ejectedAt = undefined;
    this.#failures = 0;
    this.doubtful = false;
    this.#successes += 1;
    if (this.#successes >= recoveredAfter) this.#ejections = 0;
    return readmitted;
  }

  /**
   * @param isHang - The call has no response; it counts as all failures if no other call has been answered since it started.
   * @returns Duration of the ejection that this failure causes, in milliseconds.
   */
  failed(startedAt: number, isHang: boolean): number | undefined {
    if (this.ejected && startedAt < this.#endsAt) return undefined;
    this.#successes = 0;
    this.#failures += isHang && this.#lastSuccessAt < startedAt ? maxFailures : 1;
    if (!this.ejected && this.#failures < maxFailures) return undefined;
    const durationMs = Math.min(firstEjectionMs * 2 ** this.#ejections, maxEjectionMs);
    this.#ejections += 1;
    this.#ejectedAt = performance.now();
    this.#endsAt = this.#ejectedAt + durationMs;
    this.#dueAt = this.#endsAt;
    return durationMs;
  }

  /** Forgets the failures of a server that has restarted. */
  reset(): void {
    this.#ejectedAt = undefined;
    this.#failures = 0;
    this.doubtful = false;
  }
}
