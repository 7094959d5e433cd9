import { dcgmMetricTable } from "../contract/metrics/dcgm-metrics.ts";
import { embedMetricTable, processMetricTable } from "../contract/metrics/embed-metrics.ts";
import { labelMeanings, type Metric } from "../contract/metrics/metric.ts";
import {
  tritonGpuMetricTable,
  tritonHostMetricTable,
  tritonModelMetricTable,
} from "../contract/metrics/triton-metrics.ts";

type MetricTable = Readonly<Record<string, Metric>>;

/** Page of the documentation with every metric. */
export function metricDocs(): string {
  const lines = [
    "# Metrics",
    "",
    "Rendered by `npm run render` from `contract/metrics/`. Tests compare the tables with the pages of running servers, in both directions.",
    ...section("Embed server", embedMetricTable, [
      "`GET /metrics` on the port of the API. A histogram has the series `_bucket` (label `le`), `_sum` and `_count`. Percentiles of the latency come",
      "from these histograms: Triton's latency summaries are off because they reduce its throughput. Metrics of Triton servers exist only with",
      "`backend: triton`.",
    ]),
    ...section("Process of the embed server", processMetricTable, [
      "Used by dashboards; prom-client adds others with the prefixes `process_` and `nodejs_`.",
    ]),
    ...section("Triton: models", tritonModelMetricTable, [
      "`GET /metrics` on Triton's metrics port. The mean batch size is the increase of `nv_inference_count` divided by that of",
      "`nv_inference_exec_count`.",
    ]),
    ...section("Triton: process and host", tritonHostMetricTable, []),
    ...section("Triton: GPUs", tritonGpuMetricTable, ["Absent on a host without a GPU."]),
    ...section("DCGM exporter", dcgmMetricTable, [
      "The fields that dashboards and alerts use. DCGM exporter adds labels, on Kubernetes those of the pod that uses the GPU.",
    ]),
    "",
    "## Labels",
    "",
    "| label | value |",
    "| --- | --- |",
    ...Object.entries(labelMeanings).map(([label, meaning]) => `| \`${label}\` | ${meaning} |`),
  ];
  return `${lines.join("\n")}\n`;
}

function section(title: string, table: MetricTable, text: readonly string[]): readonly string[] {
  const rows = Object.values(table).map(({ name, type, unit, labels, help }) => {
    const list = labels.map((label) => `\`${label}\``).join(", ");
    return `| \`${name}\` | ${type} | ${unit} | ${list} | ${help} |`;
  });
  return [
    ...["", `## ${title}`, "", ...text, ...(text.length > 0 ? [""] : [])],
    ...["| metric | type | unit | labels | |", "| --- | --- | --- | --- | --- |", ...rows],
  ];
}
