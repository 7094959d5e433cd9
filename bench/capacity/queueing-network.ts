/**
 * Exact solution of a closed queueing network with N clients, each with one outstanding request. The stations have product
 * form (FCFS with exponential times, processor sharing, or a delay), so the solution follows from the normalising constants
 * (Buzen's convolution). Their sums of positive terms are numerically stable, unlike mean value analysis with load-dependent
 * rates.
 */
export interface Station {
  readonly name: string;
  /** Total time of one request at the station in ms, without queueing. */
  readonly demandMs: number;
  /**
   * Work per second with `requests` queued requests relative to one: constant 1 for a single server, `requests` for a delay
   * without a queue.
   *
   * @default 1 - a single server
   */
  readonly speedUp?: (requests: number) => number;
  /**
   * Number of equal stations among which requests are distributed evenly.
   *
   * @default 1
   */
  readonly copies?: number;
}

export interface StationLoad {
  readonly name: string;
  /** Mean number of requests in all copies together. */
  readonly requests: number;
  /** Mean waiting and service time of a request, in milliseconds. */
  readonly residenceMs: number;
  /** Utilisation, 0..1; 0 for a delay. */
  readonly utilization: number;
}

export interface NetworkSolution {
  readonly requestsPerSecond: number;
  readonly stations: readonly StationLoad[];
}

/** Speed-up of a delay, at which requests do not queue. */
export const delay = (requests: number): number => requests;

/** Maximum requests per second of a station. */
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
  // prefix and suffix products of the stations, to avoid repeated multiplication
  const powers = series.map((terms, index) => power(terms, copies[index] ?? 1, clients));
  const before = [unitSeries(clients)];
  for (const terms of powers) before.push(convolve(before.at(-1) as Series, terms, clients));
  const after = [unitSeries(clients)];
  for (const terms of powers.toReversed()) {
    after.unshift(convolve(terms, after[0] as Series, clients));
  }
  const all = before.at(-1) as Series;
  const perMs = at(all, clients - 1) / at(all, clients) / scaleMs;

  const stationLoads = used.map((station, index): StationLoad => {
    const stationSeries = series[index] as Series;
    const others = [
      before[index] as Series,
      power(stationSeries, (copies[index] ?? 1) - 1, clients),
      after[index + 1] as Series,
    ].reduce((a, b) => convolve(a, b, clients));
    // probability of `queued` requests in one copy, up to a common factor
    let weighted = 0;
    let total = 0;
    for (let queued = 0; queued <= clients; queued++) {
      const probability = at(stationSeries, queued) * at(others, clients - queued);
      weighted += queued * probability;
      total += probability;
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
  return { requestsPerSecond: perMs * 1000, stations: stationLoads };
}

/** Requests per second with 1 to `clients` clients. */
export function throughputs(stations: readonly Station[], clients: number): readonly number[] {
  const { scaleMs, series, copies } = termsOfAll(stations, clients);
  const all = product(series, copies, clients);
  return Array.from({ length: clients }, (_, n) => (1000 * at(all, n)) / at(all, n + 1) / scaleMs);
}

function termsOfAll(stations: readonly Station[], clients: number) {
  const used = stations.filter(({ demandMs }) => demandMs > 0);
  // demands relative to the slowest station prevent overflow
  const slowestMs = Math.max(...used.map((station) => 1000 / stationLimit(station, clients)));
  const scaleMs = slowestMs > 0 ? slowestMs : Math.max(...used.map(({ demandMs }) => demandMs));
  const series = used.map((station) => termsOf(station, clients, scaleMs));
  return { used, scaleMs, series, copies: used.map(({ copies = 1 }) => copies) };
}

/** Terms 0..N of a generating function, scaled to a maximum of 1, because only their ratios matter. */
type Series = Float64Array;

const at = (terms: Series, index: number) => terms[index] ?? 0;

function termsOf(station: Station, clients: number, scaleMs: number): Series {
  const { demandMs, speedUp = () => 1, copies = 1 } = station;
  const logs = new Float64Array(clients + 1);
  const step = Math.log(demandMs / copies / scaleMs);
  for (let queued = 1; queued <= clients; queued++) {
    logs[queued] = (logs[queued - 1] ?? 0) + step - Math.log(speedUp(queued));
  }
  const largest = logs.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  return logs.map((value) => Math.exp(value - largest));
}

function product(series: readonly Series[], copies: readonly number[], clients: number): Series {
  return series.reduce(
    (result, terms, index) => convolve(result, power(terms, copies[index] ?? 1, clients), clients),
    unitSeries(clients),
  );
}

function unitSeries(clients: number): Series {
  const terms = new Float64Array(clients + 1);
  terms[0] = 1;
  return terms;
}

/** Power of a generating function for equal stations, by squaring. */
function power(terms: Series, count: number, clients: number): Series {
  if (count === 0) return unitSeries(clients);
  if (count === 1) return terms;
  const half = power(terms, Math.floor(count / 2), clients);
  const even = convolve(half, half, clients);
  return count % 2 === 0 ? even : convolve(even, terms, clients);
}

function convolve(a: Series, b: Series, clients: number): Series {
  if (isUnit(a)) return b;
  if (isUnit(b)) return a;
  const terms = new Float64Array(clients + 1);
  for (let i = 0; i <= clients; i++) {
    const left = at(a, i);
    if (left === 0) continue;
    for (let j = 0; j <= clients - i; j++) terms[i + j] = (terms[i + j] ?? 0) + left * at(b, j);
  }
  const largest = terms.reduce((x, y) => Math.max(x, y), 0);
  return terms.map((term) => term / largest);
}

const isUnit = (terms: Series) =>
  terms.every((term, index) => (index === 0 ? term === 1 : term === 0));
