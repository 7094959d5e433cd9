import { arrivals } from "../../target/load/arrivals.ts";
import { solve } from "../stats/bisection.ts";

/** Queue with Poisson arrivals, a fixed service time of one time unit, `servers` servers and order of arrival: M/D/c. */
interface Queue {
  /** Arrivals per service time; the queue is stable below `servers`. */
  readonly load: number;
  readonly servers: number;
}

/**
 * Probability that a request of M/D/c waits at most `wait` service times. G. J. Franx, "A simple solution for the M/D/c waiting
 * time distribution", Operations Research Letters 29 (2001), 221-229, theorem 1.
 */
function waitAtMost({ load, servers }: Queue, wait: number): number {
  const cumulative = queueLengthAtMost({ load, servers });
  const periods = Math.floor(wait) + 1;
  const rest = load * (periods - wait);
  let sum = 0;
  let term = Math.exp(-rest);
  for (let j = 0; j < periods * servers; j++) {
    sum += term * (cumulative[periods * servers - 1 - j] ?? 1);
    term *= rest / (j + 1);
  }
  return sum;
}

/**
 * Probability that at most m requests wait, for m = 0, 1, …: the requests present after one service time are those that waited and
 * the new arrivals (Crommelin 1932), iterated until the distribution is stationary.
 */
function queueLengthAtMost({ load, servers }: Queue): readonly number[] {
  const size = 12 * servers;
  const poisson: number[] = [Math.exp(-load)];
  for (let n = 1; n < size; n++) poisson.push(((poisson[n - 1] ?? 0) * load) / n);
  let present: number[] = poisson;
  for (let change = 1, step = 0; change > 1e-9 && step < 5_000; step++) {
    const waiting = [sumOf(present.slice(0, servers + 1)), ...present.slice(servers + 1)];
    const next = poisson.map((_, n) => {
      let sum = 0;
      for (let m = 0; m <= Math.min(n, waiting.length - 1); m++) {
        sum += (waiting[m] ?? 0) * (poisson[n - m] ?? 0);
      }
      return sum;
    });
    change = Math.max(...next.map((value, n) => Math.abs(value - (present[n] ?? 0))));
    present = next;
  }
  let sum = sumOf(present.slice(0, servers));
  return present.slice(servers).map((value) => {
    sum += value;
    return sum;
  });
}

const sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);

interface ServiceTime {
  readonly serviceMs: number;
  readonly servers: number;
}

/** Highest rate per second at which a percentile of the response times is at most `limitMs`. */
export function highestRate(
  { serviceMs, servers }: ServiceTime,
  percent: number,
  limitMs: number,
): number {
  const wait = limitMs / serviceMs - 1;
  const load = solve(percent / 100, [0.01 * servers, 0.99 * servers], (tried) =>
    waitAtMost({ load: tried, servers }, wait),
  );
  return (load * 1_000) / serviceMs;
}

/** Open loop of Poisson arrivals. */
interface Arrivals {
  readonly ratePerSecond: number;
  readonly seed: number;
}

/** Response times in milliseconds of the requests due in the first `seconds`: the same queue by simulation. */
export function simulatedResponseTimes(
  { serviceMs, servers }: ServiceTime,
  { ratePerSecond, seed }: Arrivals,
  seconds: number,
): readonly number[] {
  const free = Array.from({ length: servers }, () => 0);
  const times: number[] = [];
  for (const dueMs of arrivals({
    kind: "open loop",
    arrivals: "poisson",
    ratePerSecond,
    seed,
  })) {
    if (dueMs > seconds * 1_000) break;
    const next = free.indexOf(Math.min(...free));
    const doneMs = Math.max(dueMs, free[next] ?? 0) + serviceMs;
    free[next] = doneMs;
    times.push(doneMs - dueMs);
  }
  return times;
}
