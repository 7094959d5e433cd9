/**
 * A closed network of queues, solved exactly: N clients, each of which has one request on its way. The stations are of
 * the kinds for which the product form holds (first come first served with random times, shared equally, or no queue),
 * so the solution follows from the normalising constants (Buzen's convolution): sums of positive terms, which stay
 * exact where recursions on probabilities (mean value analysis with load-dependent rates) lose their digits.
 */
export interface Station {
  readonly name: string;
  /** Time that one request needs there when it is alone, all its visits together, in milliseconds. */
  readonly demandMs: number;
  /**
   * How many times as much work a second the station does when `requests` are there as when one is: 1 is a single
   * server, `requests` is a delay without a queue.
   *
   * @default 1, whatever is there: one server
   */
  readonly speedUp?: (requests: number) => number;
  /**
   * Equal stations among which requests are spread evenly.
   *
   * @default 1
   */
  readonly copies?: number;
}

export interface StationUse {
  readonly name: string;
  /** Mean requests there, in all copies together. */
  readonly requests: number;
  /** Mean time that a request is there, waiting and served, in milliseconds. */
  readonly residenceMs: number;
  /** Part of its highest throughput that is used, 0..1; 0 for a delay. */
  readonly utilization: number;
}

export interface NetworkSolution {
  readonly requestsPerSecond: number;
  readonly stations: readonly StationUse[];
}

/** A delay: requests do not wait for each other there. */
export const delay = (requests: number): number => requests;

/** Most requests per second that a station lets through, when never idle. */
export function stationLimit({ demandMs, speedUp, copies = 1 }: Station, clients: number): number {
  if (demandMs <= 0 || speedUp === delay) return Number.POSITIVE_INFINITY;
  return (1000 / demandMs) * copies * (speedUp?.(Math.max(1, clients)) ?? 1);
}

/**
 * Throughput and mean times with `clients` requests in the network.
 *
 * @param stations - At least one with a demand above zero.
 */
export function solveNetwork(stations: readonly Station[], clients: number): NetworkSolution {
  const { used, scaleMs, series, copies } = termsOfAll(stations, clients);
  // products of the stations before and after each one: so that no pair is multiplied twice
  const powers = series.map((one, index) => power(one, copies[index] ?? 1, clients));
  const before = [none(clients)];
  for (const one of powers) before.push(convolve(before.at(-1) as Series, one, clients));
  const after = [none(clients)];
  for (const one of powers.toReversed()) {
    after.unshift(convolve(one, after[0] as Series, clients));
  }
  const all = before.at(-1) as Series;
  const perMs = at(all, clients - 1) / at(all, clients) / scaleMs;

  const uses = used.map((station, index): StationUse => {
    const own = series[index] as Series;
    const others = [
      before[index] as Series,
      power(own, (copies[index] ?? 1) - 1, clients),
      after[index + 1] as Series,
    ].reduce((a, b) => convolve(a, b, clients));
    // chance of `here` requests in one copy, all but a common factor
    let weighted = 0;
    let total = 0;
    for (let here = 0; here <= clients; here++) {
      const chance = at(own, here) * at(others, clients - here);
      weighted += here * chance;
      total += chance;
    }
    const requests = ((station.copies ?? 1) * weighted) / total;
    const limit = stationLimit(station, clients);
    return {
      name: station.name,
      requests,
      residenceMs: requests / perMs,
      utilization: Number.isFinite(limit) ? (perMs * 1000) / limit : 0,
    };
  });
  return { requestsPerSecond: perMs * 1000, stations: uses };
}

/** Requests per second with 1, 2, … up to `clients` clients: all of them in one go. */
export function throughputs(stations: readonly Station[], clients: number): readonly number[] {
  const { scaleMs, series, copies } = termsOfAll(stations, clients);
  const all = product(series, copies, clients);
  return Array.from({ length: clients }, (_, n) => (1000 * at(all, n)) / at(all, n + 1) / scaleMs);
}

function termsOfAll(stations: readonly Station[], clients: number) {
  const used = stations.filter(({ demandMs }) => demandMs > 0);
  // demands relative to the slowest station: its terms are then near 1, and nothing overflows
  const slowestMs = Math.max(...used.map((station) => 1000 / stationLimit(station, clients)));
  const scaleMs = slowestMs > 0 ? slowestMs : Math.max(...used.map(({ demandMs }) => demandMs));
  const series = used.map((station) => termsOf(station, clients, scaleMs));
  return { used, scaleMs, series, copies: used.map(({ copies = 1 }) => copies) };
}

/** Terms 0..N of a generating function, divided so that the largest is 1: only ratios of them count. */
type Series = Float64Array;

const at = (terms: Series, index: number) => terms[index] ?? 0;

function termsOf(station: Station, clients: number, scaleMs: number): Series {
  const { demandMs, speedUp = () => 1, copies = 1 } = station;
  const logs = new Float64Array(clients + 1);
  const step = Math.log(demandMs / copies / scaleMs);
  for (let here = 1; here <= clients; here++) {
    logs[here] = (logs[here - 1] ?? 0) + step - Math.log(speedUp(here));
  }
  const largest = logs.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  return logs.map((value) => Math.exp(value - largest));
}

function product(series: readonly Series[], copies: readonly number[], clients: number): Series {
  return series.reduce(
    (result, one, index) => convolve(result, power(one, copies[index] ?? 1, clients), clients),
    none(clients),
  );
}

function none(clients: number): Series {
  const terms = new Float64Array(clients + 1);
  terms[0] = 1;
  return terms;
}

/** Equal stations, by squaring. */
function power(one: Series, count: number, clients: number): Series {
  if (count === 0) return none(clients);
  if (count === 1) return one;
  const half = power(one, Math.floor(count / 2), clients);
  const even = convolve(half, half, clients);
  return count % 2 === 0 ? even : convolve(even, one, clients);
}

function convolve(a: Series, b: Series, clients: number): Series {
  if (isOne(a)) return b;
  if (isOne(b)) return a;
  const terms = new Float64Array(clients + 1);
  for (let i = 0; i <= clients; i++) {
    const left = at(a, i);
    if (left === 0) continue;
    for (let j = 0; j <= clients - i; j++) terms[i + j] = (terms[i + j] ?? 0) + left * at(b, j);
  }
  const largest = terms.reduce((x, y) => Math.max(x, y), 0);
  return terms.map((term) => term / largest);
}

const isOne = (terms: Series) =>
  terms.every((term, index) => (index === 0 ? term === 1 : term === 0));
