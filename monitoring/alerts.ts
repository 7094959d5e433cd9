import { dcgmMetrics } from "../contract/metrics/dcgm-metrics.ts";
import { embedMetrics } from "../contract/metrics/embed-metrics.ts";
import { tritonMetrics } from "../contract/metrics/triton-metrics.ts";
import {
  errorRatio,
  imagesPerSecond,
  meanOf,
  rate,
  recorded,
  type Selectors,
  slowRatio,
  usdPer1000Images,
} from "./expressions.ts";

/** Facts of an environment on which alerts and cost panels depend; 0 if not known. Text: a placeholder. */
export interface AlertFacts {
  readonly selectors: Selectors;
  /** Bound of a bucket of the latency, in seconds, which 99 % of the requests must not exceed. */
  readonly latencySeconds: number | string;
  readonly usdPerHour: number | string;
  readonly predictedImagesPerSecond: number | string;
  readonly budgetUsdPer1000Images: number | string;
}

interface Alert {
  readonly name: string;
  readonly severity: "critical" | "warning";
  /** Time for which the expression must hold. @default - fires at once */
  readonly for?: string;
  readonly expr: string;
  readonly summary: string;
}

/** Prometheus' rule groups, as in a rule file. */
export interface RuleGroups {
  readonly groups: readonly { readonly name: string; readonly rules: readonly object[] }[];
}

/** Fractions of the requests that may fail, or be slower than the SLO. */
export const budgets = { errors: 0.001, latency: 0.01 } as const;

/**
 * Two alerts on the rate at which an error budget of 30 days is used, each over a long window, which ignores short disturbances,
 * and a short one, which ends the alert soon after the cause.
 */
function burnAlerts(
  name: string,
  summary: string,
  budget: number,
  ratio: (window: string) => string,
): readonly Alert[] {
  const burns = (factor: number, long: string, short: string) => {
    const limit = Number((factor * budget).toPrecision(6));
    return `(${ratio(long)} > ${limit} and ${ratio(short)} > ${limit})`;
  };
  const [fast, slow] = [
    `${burns(14.4, "1h", "5m")} or ${burns(6, "6h", "30m")}`,
    `${burns(3, "1d", "2h")} or ${burns(1, "3d", "6h")}`,
  ];
  return [
    { name, severity: "critical", expr: fast, summary: `${summary}: budget used within days` },
    { name, severity: "warning", expr: slow, summary: `${summary}: budget used within 30 days` },
  ];
}

function serviceAlerts({ selectors, latencySeconds }: AlertFacts): readonly Alert[] {
  const { embed, triton } = selectors;
  const pending = `${embedMetrics.pendingImages}{${embed}}`;
  return [
    ...burnAlerts("EmbedErrorBudgetBurn", "Requests fail (5xx or 429)", budgets.errors, (window) =>
      errorRatio(embed, window),
    ),
    ...burnAlerts(
      "EmbedLatencyBudgetBurn",
      `Requests take longer than ${latencySeconds} s`,
      budgets.latency,
      (window) => slowRatio(embed, window, String(latencySeconds)),
    ),
    {
      name: "EmbedQueueGrowing",
      severity: "warning",
      for: "5m",
      expr: `deriv(${pending}[10m]) > 0.05 and ${pending} > 64`,
      summary: "{{ $labels.instance }} accepts images faster than it embeds them",
    },
    {
      name: "EmbedNotReady",
      severity: "critical",
      for: "5m",
      expr: `${embedMetrics.ready}{${embed}} == 0 or up{${embed}} == 0`,
      summary: "{{ $labels.instance }} is not ready, or its metrics cannot be read",
    },
    {
      name: "CertificateExpiring",
      severity: "warning",
      expr: `${embedMetrics.certificateExpiry}{${embed}} - time() < ${14 * 86_400} or ${embedMetrics.fileValid}{${embed},file="certificate"} == 0`,
      summary:
        "The certificate of {{ $labels.instance }} expires soon, or its replacement is invalid",
    },
    {
      name: "UpstreamEjected",
      severity: "warning",
      for: "2m",
      expr: `${embedMetrics.tritonHealthy}{${embed}} < 1`,
      summary: "{{ $labels.target }} receives no requests for {{ $labels.model }}",
    },
    {
      name: "TritonBatchCollapse",
      severity: "warning",
      for: "10m",
      expr: `${meanOf([tritonMetrics.count, tritonMetrics.executions], triton, "10m", "instance, model")} < 1.5 and sum by (instance, model) (avg_over_time(${tritonMetrics.pendingRequests}{${triton}}[10m])) > 8`,
      summary:
        "{{ $labels.instance }} executes {{ $labels.model }} in batches of one while requests wait",
    },
  ];
}

function gpuAlerts({ selectors: { gpu } }: AlertFacts): readonly Alert[] {
  const events = 'clock_event=~"hw_.+|sw_thermal"';
  // DCGM exporter 4.8.3 renames the label
  const host = "Hostname, hostname";
  const hostName = "{{ $labels.Hostname }}{{ $labels.hostname }}";
  const count = `count by (${host}) (${dcgmMetrics.utilization}{${gpu}})`;
  const before = `max_over_time(${count}[1h:1m])`;
  return [
    {
      name: "GpuThrottled",
      severity: "warning",
      for: "10m",
      expr: `sum by (${host}, gpu, clock_event) (${dcgmMetrics.clockEvents}{${[gpu, events].filter(Boolean).join(",")}}) > 0`,
      summary: `GPU {{ $labels.gpu }} of ${hostName} lowers its clocks: {{ $labels.clock_event }}`,
    },
    {
      name: "GpuLost",
      severity: "critical",
      for: "1m",
      expr: `${before} > (${count} or ${before} * 0) or sum by (${host}) (${dcgmMetrics.xid}{${gpu}} == 79)`,
      summary: `${hostName} has lost a GPU`,
    },
  ];
}

function costAlerts({ selectors: { embed } }: AlertFacts): readonly Alert[] {
  // a server without text towers has no counter of texts
  const [images, texts] = [embedMetrics.images, embedMetrics.texts].map(
    (name) => `(${rate(name, embed, "1h")} or vector(0))`,
  );
  return [
    {
      name: "HostIdle",
      severity: "warning",
      for: "2h",
      expr: `${images} + ${texts} == 0 and sum(${recorded.usdPerHour}) > 0`,
      summary: "The GPUs have embedded nothing for hours",
    },
    {
      name: "HostAboveBudget",
      severity: "warning",
      for: "6h",
      expr: `${usdPer1000Images(embed, "1h")} > sum(${recorded.budgetUsdPer1000Images} > 0)`,
      summary: "1,000 images cost {{ $value }} $, more than the budget",
    },
    {
      name: "BelowPredictedCapacity",
      severity: "warning",
      for: "15m",
      expr: `${imagesPerSecond(embed, "15m")} < 0.5 * sum(${recorded.predictedImagesPerSecond} > 0) and sum(avg_over_time(${embedMetrics.pendingImages}{${embed}}[15m])) > 64`,
      summary:
        "The service embeds less than half of the predicted images per second although images wait",
    },
  ];
}

export function alerts(facts: AlertFacts): readonly Alert[] {
  return [...serviceAlerts(facts), ...gpuAlerts(facts), ...costAlerts(facts)];
}

/** Path of the page that explains an alert. */
export const runbookOf = (alert: string) => `docs/runbooks/${alert}.md`;

/** Alerts and recorded facts as rule groups. */
export function ruleGroups(facts: AlertFacts): RuleGroups {
  const { usdPerHour, predictedImagesPerSecond, budgetUsdPer1000Images } = facts;
  const values = { usdPerHour, predictedImagesPerSecond, budgetUsdPer1000Images };
  return {
    groups: [
      {
        name: "clipstack-facts",
        rules: Object.entries(values).map(([key, value]) => ({
          record: recorded[key as keyof typeof recorded],
          expr: `vector(${value})`,
        })),
      },
      {
        name: "clipstack-alerts",
        rules: alerts(facts).map(({ name, severity, for: duration, expr, summary }) => ({
          alert: name,
          expr,
          ...(duration !== undefined && { for: duration }),
          labels: { severity },
          annotations: { summary, runbook_url: runbookOf(name) },
        })),
      },
    ],
  };
}
