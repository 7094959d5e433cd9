import { readdirSync, readFileSync } from "node:fs";
import type { Sample } from "./test-prometheus.ts";

interface RenderedPanel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string }[];
  readonly panels?: readonly RenderedPanel[];
}

const folder = new URL("../helm/clipstack/dashboards/", import.meta.url);

/** Queries of all rendered dashboards. */
export function dashboardQueries(): readonly {
  readonly dashboard: string;
  readonly panel: string;
  readonly expr: string;
}[] {
  return readdirSync(folder).flatMap((file) => {
    const { title: dashboard, panels } = JSON.parse(readFileSync(new URL(file, folder), "utf8"));
    return (panels as readonly RenderedPanel[])
      .flatMap((panel) => [panel, ...(panel.panels ?? [])])
      .flatMap(({ title: panel, targets = [] }) =>
        targets.map(({ expr }) => ({ dashboard, panel, expr })),
      );
  });
}

/** Replaces Grafana's variables by all values and a window, and steps of subqueries by a second, because the data is new. */
export function runnable(expr: string, window: string): string {
  return expr
    .replaceAll("$__rate_interval", window)
    .replaceAll(/=~"\$\w+"/g, '=~".*"')
    .replaceAll(/\[(\d+\w):\d+m\]/g, "[$1:1s]");
}

export const isNumber = ({ value }: Pick<Sample, "value">) => Number.isFinite(Number(value[1]));
