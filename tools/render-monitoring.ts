import { stringify } from "yaml";
import { dcgmCounters } from "../contract/metrics/dcgm-metrics.ts";
import { ruleGroups } from "../monitoring/alerts.ts";
import { dashboards } from "../monitoring/dashboards.ts";
import { grafanaDashboard } from "../monitoring/grafana.ts";
import type { RenderedFile } from "./rendered-file.ts";

const chart = "helm/clipstack";

/** Dashboards, and rules with placeholders that the chart's templates replace. */
export function monitoringFiles(): readonly RenderedFile[] {
  return [
    ...dashboards.map((dashboard) => ({
      path: `${chart}/dashboards/${dashboard.name}.json`,
      text: `${JSON.stringify(grafanaDashboard(dashboard), null, 1)}\n`,
    })),
    { path: `${chart}/prometheus/rules.yaml`, text: rulesText() },
    { path: `${chart}/prometheus/dcgm-counters.csv`, text: dcgmCounters },
  ];
}

function rulesText(): string {
  const groups = ruleGroups({
    selectors: { embed: "EMBED_SELECTOR", triton: "TRITON_SELECTOR", gpu: "GPU_SELECTOR" },
    latencySeconds: "LATENCY_SECONDS",
    usdPerHour: "USD_PER_HOUR",
    predictedImagesPerSecond: "PREDICTED_IMAGES_PER_SECOND",
    budgetUsdPer1000Images: "BUDGET_USD_PER_1000_IMAGES",
  });
  return [
    "# Rendered by 'npm run render' from monitoring/alerts.ts. Do not edit. A template replaces the names in capitals.",
    stringify(groups, { lineWidth: 0 }),
  ].join("\n");
}
