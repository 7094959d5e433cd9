import { describe, expect, test } from "vitest";
import { testLoadPoint } from "../report/test-bench-record.ts";
import { figureInterval, pairedRatio, unpairedRatio } from "./intervals.ts";
import { normals, simulatedRounds } from "./test-rounds.ts";

/**
 * Coverage of the intervals of the reports: noise between rounds, as of machines and restarted processes, and 3 % between the
 * windows of a round. 2,500 simulations have a standard error of 0.44 %.
 */
const simulations = 2_500;
const rounds = 5;
const point = testLoadPoint();
const [truth, p50] = [point.imagesPerSecond, point.latencyMs!.p50];

describe.each([0, 0.02, 0.05, 0.1])(
  "with a noise of %d between rounds, 95 % intervals",
  (between) => {
    const noise = { between, within: 0.03 };
    const simulate = (holds: (draw: () => typeof point) => boolean): number => {
      const normal = normals(1_000 + 100 * between);
      const draw = () => simulatedRounds(point, rounds, noise, normal);
      let held = 0;
      for (let i = 0; i < simulations; i++) held += holds(draw) ? 1 : 0;
      return held / simulations;
    };
    const covers = (interval: { low: number; high: number } | undefined, value: number) =>
      interval !== undefined && interval.low <= value && value <= interval.high;

    const cases: readonly (readonly [string, (draw: () => typeof point) => boolean])[] = [
      [
        "a ratio of two endpoints",
        (draw) => covers(pairedRatio([[draw(), draw()]], "throughput"), 1),
      ],
      ["a ratio of p50", (draw) => covers(pairedRatio([[draw(), draw()]], "p50"), 1)],
      [
        "an endpoint over two load points",
        (draw) =>
          covers(
            pairedRatio(
              [1, 2].map(() => [draw(), draw()]),
              "throughput",
            ),
            1,
          ),
      ],
      [
        "a ratio of two records",
        (draw) => covers(unpairedRatio([[draw(), draw()]], "throughput"), 1),
      ],
      [
        "a throughput",
        // the mean of a lognormal rate exceeds its median
        (draw) =>
          covers(
            figureInterval(draw(), "throughput"),
            truth * Math.exp((between ** 2 + noise.within ** 2) / 2),
          ),
      ],
      [
        "a p50",
        (draw) =>
          covers(
            figureInterval(draw(), "p50"),
            p50 * Math.exp((between ** 2 - noise.within ** 2 / 3) / 2),
          ),
      ],
    ];

    test.each(cases)(
      "of %s contain the true value in 93 to 97 of 100 simulations",
      (_what, holds) => {
        const coverage = simulate(holds);
        expect(coverage).toBeGreaterThanOrEqual(0.93);
        expect(coverage).toBeLessThanOrEqual(0.97);
      },
    );
  },
);
