import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dcgmMetricTable } from "../contract/metrics/dcgm-metrics.ts";
import { exposedDifferences } from "../contract/metrics/test-exposition.ts";
import { prometheusMissing } from "./test-prometheus.ts";
import { dashboardQueries, isNumber, runnable } from "./test-queries.ts";
import { dcgmPage, startMonitored, testRules } from "./test-services.ts";

const panels = dashboardQueries().map(
  ({ dashboard, panel, expr }) => [`${dashboard}: ${panel}`, expr] as const,
);
const rules = testRules.groups.flatMap((group) => group.rules) as readonly {
  readonly alert?: string;
  readonly expr: string;
}[];

const window = "10s";

describe.skipIf(prometheusMissing !== "")(
  `queries, by a real Prometheus${prometheusMissing && ` (skipped: ${prometheusMissing})`}`,
  () => {
    let services: Awaited<ReturnType<typeof startMonitored>>;
    beforeAll(async () => {
      services = await startMonitored();
      await services.load(6);
    });
    afterAll(() => services?.stop());

    test("there are panels and alerts", () => {
      expect(panels.length).toBeGreaterThan(50);
      expect(rules.length).toBeGreaterThan(12);
    });

    test.each(panels)("panel '%s' has data", async (_, expr) => {
      await expect
        .poll(async () => (await services.prometheus.query(runnable(expr, window))).map(isNumber))
        .toContain(true);
    });

    test.each(rules.map(({ alert = "a recorded fact", expr }) => [alert, expr] as const))(
      "the expression of %s compares existing series",
      async (_, expr) => {
        // with bool, a comparison that is false is 0 instead of absent
        const compared = runnable(expr, window).replaceAll(/ (>|<|==) /g, " $1 bool ");
        await expect
          .poll(async () => (await services.prometheus.query(compared)).map(isNumber))
          .toContain(true);
      },
    );

    test("Prometheus evaluates every rule", async () => {
      const { groups } = (await services.prometheus.get("rules")) as {
        groups: readonly { rules: readonly { health: string; lastError?: string }[] }[];
      };
      const evaluated = groups.flatMap((group) => group.rules);
      expect(evaluated).toHaveLength(rules.length);
      expect(evaluated.filter(({ health }) => health !== "ok")).toEqual([]);
    });
  },
);

test("the exposition in the tests has every field of DCGM exporter that dashboards use", () => {
  const differences = exposedDifferences(dcgmPage, dcgmMetricTable);
  expect(differences.filter((each) => !each.startsWith("labels"))).toEqual([]);
});
