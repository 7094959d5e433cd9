/** How long the quantiles look back, in milliseconds, and in how many steps that window moves. */
const windowMs = 60_000;
const steps = 5;
/** Values that are kept of each step; of more, a random choice. */
const maxKept = 2_048;

interface Step {
  /** Number of the step since the start of time. */
  readonly number: number;
  readonly kept: number[];
  seen: number;
}

/** Quantiles of the values of the last minute, and count and sum of all: a summary as Prometheus has it. */
export class LatencySummary {
  count = 0;
  sum = 0;
  #steps: Step[] = [];

  observe(value: number, nowMs = performance.now()): void {
    this.count += 1;
    this.sum += value;
    const number = stepAt(nowMs);
    let step = this.#steps.at(-1);
    if (step?.number !== number) {
      this.#forget(number);
      step = { number, kept: [], seen: 0 };
      this.#steps.push(step);
    }
    step.seen += 1;
    if (step.kept.length < maxKept) {
      step.kept.push(value);
      return;
    }
    const index = Math.floor(Math.random() * step.seen);
    if (index < maxKept) step.kept[index] = value;
  }

  /** @returns One for each of `quantiles` (0 to 1); NaN when there was no value in the window. */
  quantiles(quantiles: readonly number[], nowMs = performance.now()): readonly number[] {
    this.#forget(stepAt(nowMs));
    const values = Float64Array.from(this.#steps.flatMap(({ kept }) => kept)).sort();
    return quantiles.map(
      (quantile) =>
        values[Math.min(values.length - 1, Math.floor(quantile * values.length))] ?? Number.NaN,
    );
  }

  #forget(current: number): void {
    this.#steps = this.#steps.filter(({ number }) => number > current - steps);
  }
}

function stepAt(nowMs: number): number {
  return Math.floor(nowMs / (windowMs / steps));
}

/** Counts of values by their upper bounds: a histogram as Prometheus has it. */
export class LatencyHistogram {
  count = 0;
  sum = 0;
  readonly bounds: readonly number[];
  readonly #counts: number[];

  /** @param bounds - Ascending. */
  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.#counts = bounds.map(() => 0);
  }

  observe(value: number): void {
    this.count += 1;
    this.sum += value;
    for (const [index, bound] of this.bounds.entries()) {
      if (value <= bound) this.#counts[index]! += 1;
    }
  }

  /** Values up to each bound. */
  get cumulative(): readonly number[] {
    return this.#counts;
  }
}
