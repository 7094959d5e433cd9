import { expect, test } from "vitest";
import { delay, type Station, solveNetwork, throughputs } from "./queueing-network.ts";

/** Exact mean value analysis of single servers and delays, as an independent reference. */
function meanValues(stations: readonly Station[], clients: number) {
  let queues = stations.map(() => 0);
  let rate = 0;
  for (let n = 1; n <= clients; n++) {
    const times = stations.map(({ demandMs, speedUp }, index) =>
      speedUp === delay ? demandMs : demandMs * (1 + (queues[index] ?? 0)),
    );
    rate = n / times.reduce((a, b) => a + b, 0);
    queues = times.map((ms) => ms * rate);
  }
  return { requestsPerSecond: rate * 1000, queues };
}

const closed: readonly Station[] = [
  { name: "link", demandMs: 24.7 },
  { name: "client", demandMs: 26.1 },
  { name: "gpu", demandMs: 4 },
  { name: "away", demandMs: 243, speedUp: delay },
];

test.each([1, 2, 16, 128, 1000])("agrees with mean value analysis for %i clients", (clients) => {
  const solution = solveNetwork(closed, clients);
  const { requestsPerSecond, queues } = meanValues(closed, clients);
  expect(solution.requestsPerSecond).toBeCloseTo(requestsPerSecond, 8);
  expect(solution.stations.map(({ requests }) => requests)).toEqual(
    queues.map((queue) => expect.closeTo(queue, 6)),
  );
});

test("follows Little's law", () => {
  const { requestsPerSecond, stations } = solveNetwork(closed, 40);
  const cycleMs = (1000 * 40) / requestsPerSecond;
  expect(stations.reduce((sum, { requests }) => sum + requests, 0)).toBeCloseTo(40, 6);
  expect(stations.reduce((sum, { residenceMs }) => sum + residenceMs, 0)).toBeCloseTo(cycleMs, 6);
});

test("computes the throughput of every number of clients at once", () => {
  const all = throughputs(closed, 64);
  expect(all).toHaveLength(64);
  for (const clients of [1, 7, 64]) {
    expect(all[clients - 1]).toBeCloseTo(solveNetwork(closed, clients).requestsPerSecond, 8);
  }
});

test("a station with two servers matches the birth-death chain of M/M/2 with three customers", () => {
  const stations: readonly Station[] = [
    { name: "servers", demandMs: 10, speedUp: (n) => Math.min(n, 2) },
    { name: "thinking", demandMs: 20, speedUp: delay },
  ];
  // probability of k requests in the station: p(k) ∝ Π λ(k)/μ(k), λ = (3-k)/20, μ = min(k,2)/10
  const p = [1, 1.5, 1.5 * 0.5, 1.5 * 0.5 * 0.25];
  const sum = p.reduce((a, b) => a + b, 0);
  const rate = ((p[1] as number) / 10 + ((p[2] as number) + (p[3] as number)) / 5) / sum;
  expect(solveNetwork(stations, 3).requestsPerSecond).toBeCloseTo(rate * 1000, 9);
});

test("copies of a station are equivalent to separate stations with a share of the demand", () => {
  const copies = solveNetwork(
    [
      { name: "gpu", demandMs: 8, copies: 4 },
      { name: "link", demandMs: 3 },
    ],
    12,
  );
  const apart = solveNetwork(
    [
      ...[0, 1, 2, 3].map((index) => ({ name: `gpu-${index}`, demandMs: 2 })),
      { name: "link", demandMs: 3 },
    ],
    12,
  );
  expect(copies.requestsPerSecond).toBeCloseTo(apart.requestsPerSecond, 9);
  expect(copies.stations[0]?.requests).toBeCloseTo(
    apart.stations.slice(0, 4).reduce((sum, { requests }) => sum + requests, 0),
    9,
  );
});

test("stays exact with a thousand clients, a long delay and a station that grows faster", () => {
  const solution = solveNetwork(
    [
      {
        name: "gpu",
        demandMs: 5,
        speedUp: (n) => (Math.min(n, 32) * 5) / (4.9 + 0.1 * Math.min(n, 32)),
      },
      { name: "away", demandMs: 100_000, speedUp: delay },
    ],
    1000,
  );
  expect(solution.requestsPerSecond).toBeGreaterThan(9.99);
  expect(solution.requestsPerSecond).toBeLessThan(10);
});

test("delays alone never queue", () => {
  const { requestsPerSecond } = solveNetwork([{ name: "away", demandMs: 100, speedUp: delay }], 50);
  expect(requestsPerSecond).toBeCloseTo(500, 6);
});
