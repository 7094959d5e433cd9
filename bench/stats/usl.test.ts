import { describe, expect, test } from "vitest";
import { normals } from "./test-rounds.ts";
import { fitUsl, type Point, saturationOf, uslPeak, uslThroughput } from "./usl.ts";

const clients = [1, 4, 8, 16, 32, 64, 128];
const at = (law: { lambda: number; sigma: number; kappa: number }): readonly Point[] =>
  clients.map((n) => ({ clients: n, throughput: uslThroughput(law, n) }));

test.each([
  { lambda: 100, sigma: 0.05, kappa: 0.001 },
  { lambda: 3.4, sigma: 0.02, kappa: 0.0004 },
  { lambda: 9_000, sigma: 0.3, kappa: 0.01 },
])("finds the law that the points were made with: %o", (law) => {
  const fit = fitUsl(at(law))!;
  expect(fit.lambda).toBeCloseTo(law.lambda, 4 - Math.round(Math.log10(law.lambda)));
  expect(fit.sigma).toBeCloseTo(law.sigma, 4);
  expect(fit.kappa).toBeCloseTo(law.kappa, 6);
  expect(fit.residual).toBeLessThan(1e-3);
});

test("the peak is the number of clients beyond which throughput falls", () => {
  const fit = fitUsl(at({ lambda: 100, sigma: 0.05, kappa: 0.001 }))!;
  expect(fit.peak?.clients).toBeCloseTo(Math.sqrt(0.95 / 0.001), 0);
  expect(fit.peak?.throughput).toBeGreaterThan(uslThroughput(fit, 20));
  expect(fit.peak?.throughput).toBeGreaterThan(uslThroughput(fit, 50));
});

test("without coherency there is a ceiling and no peak", () => {
  const fit = fitUsl(at({ lambda: 100, sigma: 0.25, kappa: 0 }))!;
  expect(fit.kappa).toBe(0);
  expect(fit.peak).toBeUndefined();
  expect(fit.ceiling).toBeCloseTo(400, 0);
});

test("throughput that grows with every client has neither peak nor ceiling", () => {
  const fit = fitUsl(at({ lambda: 10, sigma: 0, kappa: 0 }))!;
  expect(fit).toMatchObject({ sigma: 0, kappa: 0 });
  expect(fit.peak).toBeUndefined();
  expect(fit.ceiling).toBeUndefined();
});

test("superlinear growth does not make a parameter negative", () => {
  const fit = fitUsl(clients.map((n) => ({ clients: n, throughput: n ** 1.2 })))!;
  expect(Math.min(fit.lambda, fit.sigma, fit.kappa)).toBeGreaterThanOrEqual(0);
});

test("a bad fit has a large residual", () => {
  const jagged = clients.map((n, i) => ({ clients: n, throughput: i % 2 === 0 ? 100 : 20 }));
  expect(fitUsl(jagged)!.residual).toBeGreaterThan(0.3);
});

test("fits the published runs of four GPUs with a maximum of 43.2 images per second at 32 clients", () => {
  const published = [3.4, 11, 20.2, 31.9, 43.2, 37.4, 37.1].map((throughput, i) => ({
    clients: clients[i]!,
    throughput,
  }));
  const fit = fitUsl(published)!;
  expect(fit.residual).toBeLessThan(0.1);
  expect(fit.peak!.clients).toBeGreaterThan(32);
  expect(fit.peak!.clients).toBeLessThan(96);
  expect(fit.peak!.throughput).toBeCloseTo(41, -1);
  expect(saturationOf(published)).toMatchObject({
    maximum: { clients: 32, throughput: 43.2 },
    sufficient: { clients: 32 },
    reached: true,
  });
});

test("four numbers of clients are too few for a law of three parameters", () => {
  const points = at({ lambda: 1, sigma: 0, kappa: 0 });
  expect(fitUsl(points.slice(0, 4))).toBeUndefined();
  expect(fitUsl(points.slice(0, 5))).toBeDefined();
});

test("saturation is not reached if only the last point is close to the maximum", () => {
  expect(saturationOf(at({ lambda: 10, sigma: 0, kappa: 0 }))).toMatchObject({ reached: false });
});

test("the sufficient point has the fewest clients with 95 % of the maximum", () => {
  const rates = [50, 90, 96, 100];
  const points = rates.map((throughput, i) => ({ clients: clients[i]!, throughput }));
  expect(saturationOf(points)?.sufficient).toEqual({ clients: 8, throughput: 96 });
});

describe("the interval of the peak", () => {
  const law = { lambda: 100, sigma: 0.05, kappa: 0.001 };
  const peak = { clients: Math.sqrt(0.95 / 0.001), throughput: 0 };
  peak.throughput = uslThroughput(law, peak.clients);
  const noisy = (normal: () => number, noise: number) =>
    Array.from({ length: 5 }, () =>
      at(law).map(({ clients: n, throughput }) => ({
        clients: n,
        throughput: throughput * Math.exp(noise * normal()),
      })),
    );

  test("contains the true peak in about 95 of 100 simulations", () => {
    const normal = normals(3);
    let held = 0;
    for (let i = 0; i < 200; i++) {
      const { throughput } = uslPeak(noisy(normal, 0.02))!;
      held += throughput!.low <= peak.throughput && peak.throughput <= throughput!.high ? 1 : 0;
    }
    expect(held / 200).toBeGreaterThan(0.9);
  });

  test("is wider with more noise between rounds", () => {
    const width = (noise: number) => {
      const { clients: interval } = uslPeak(noisy(normals(4), noise))!;
      return interval!.high - interval!.low;
    };
    expect(width(0.04)).toBeGreaterThan(2 * width(0.005));
  });

  test("is absent if the throughput of one round grows without a maximum, and with one round", () => {
    const [first, ...others] = noisy(normals(5), 0.01);
    const linear = clients.map((n) => ({ clients: n, throughput: 100 * n }));
    const found = uslPeak([linear, ...others])!;
    expect(found).toMatchObject({ rounds: 5, bounded: 4 });
    expect([found.throughput, found.clients]).toEqual([undefined, undefined]);
    expect(uslPeak([first!])).toBeUndefined();
  });
});
