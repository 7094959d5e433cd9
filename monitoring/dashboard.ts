import { dcgmMetrics } from "../contract/metrics/dcgm-metrics.ts";
import { embedMetrics } from "../contract/metrics/embed-metrics.ts";
import { tritonMetrics } from "../contract/metrics/triton-metrics.ts";

export interface Panel {
  readonly title: string;
  /** Grafana's id of the unit. */
  readonly unit: string;
  /** `stat` shows the last value only. @default "lines" */
  readonly kind?: "lines" | "stat";
  readonly description?: string;
  /** PromQL by legend, which may contain labels: `{{model}}`. */
  readonly queries: Readonly<Record<string, string>>;
}

export type VariableName = "job" | "namespace" | "triton" | "gpu";

export interface Dashboard {
  /** File name and unique id. */
  readonly name: string;
  readonly title: string;
  readonly variables: readonly VariableName[];
  readonly rows: Readonly<Record<string, readonly Panel[]>>;
}

/** Variables of dashboards: label and metric of which the values are offered. All are selected by default. */
export const variables = {
  namespace: { title: "Namespace", metric: embedMetrics.requests, label: "namespace" },
  job: { title: "Service", metric: embedMetrics.requests, label: "job" },
  triton: { title: "Triton service", metric: tritonMetrics.count, label: "job" },
  gpu: { title: "GPU", metric: dcgmMetrics.utilization, label: "UUID" },
} as const satisfies Record<VariableName, { title: string; metric: string; label: string }>;

/** Grafana's name of a window that fits the scrape interval and the time range. */
export const window = "$__rate_interval";
export const embed = 'namespace=~"$namespace",job=~"$job"';
export const triton = 'namespace=~"$namespace",job=~"$triton"';
export const gpu = 'UUID=~"$gpu"';
