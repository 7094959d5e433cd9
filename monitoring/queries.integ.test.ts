import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dcgmMetricTable } from "../contract/metrics/dcgm-metrics.ts";
import { exposedDifferences } from "../contract/metrics/test-exposition.ts";
import { prometheusMissing } from "./test-prometheus.ts";
import { dcgmPage, startMonitored, testRules } from "./test-services.ts";

interface RenderedPanel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string }[];
  readonly panels?: readonly RenderedPanel[];
}

const folder = new URL("../helm/clipstack/dashboards/", import.meta.url);
const panels = readdirSync(folder).flatMap((file) => {
  const { title, panels } = JSON.parse(readFileSync(new URL(file, folder), "utf8"));
  return (panels as readonly RenderedPanel[])
    .flatMap((panel) => [panel, ...(panel.panels ?? [])])
    .flatMap(({ title: panel, targets = [] }) =>
      targets.map(({ expr }) => [`${title}: ${panel}`, expr] as const),
    );
});
const rules = testRules.groups.flatMap((group) => group.rules) as readonly {
  readonly alert?: string;
  readonly expr: string;
}[];

/** Replaces Grafana's variables, and the steps of subqueries, because the data is some seconds old. */
const runnable = (expr: string) =>
  expr
    .replaceAll("$__rate_interval", "10s")
    .replaceAll(/=~"\$\w+"/g, '=~".*"')
    .replaceAll(/\[(\d+\w):\d+m\]/g, "[$1:1s]");

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
        .poll(async () => (await services.prometheus.query(runnable(expr))).map(isNumber))
        .toContain(true);
    });

    test.each(rules.map(({ alert = "a recorded fact", expr }) => [alert, expr] as const))(
      "the expression of %s compares existing series",
      async (_, expr) => {
        // with bool, a comparison that is false is 0 instead of absent
        const compared = runnable(expr).replaceAll(/ (>|<|==) /g, " $1 bool ");
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

const isNumber = ({ value }: { readonly value: readonly [number, string] }) =>
  Number.isFinite(Number(value[1]));

test("the recorded exposition has every field of DCGM exporter that dashboards use", () => {
  const differences = exposedDifferences(dcgmPage, dcgmMetricTable);
  expect(differences.filter((each) => !each.startsWith("labels"))).toEqual([]);
});
