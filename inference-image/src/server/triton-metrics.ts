import { type MetricsSettings, metricsSettings } from "../contract/triton-flags.ts";
import { failureReasons, type LatencyPart, latencyParts } from "./model-counters.ts";
import type { ModelRegistry } from "./model-registry.ts";
import type { ServedModel } from "./served-model.ts";

/** Content type of Prometheus' text format. */
export const metricsContentType = "text/plain; version=0.0.4; charset=utf-8";

interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge";
  /** One value, or one for each value of the label `reason`. */
  value(model: ServedModel): number | Readonly<Record<string, number>>;
}

const families: readonly Family[] = [
  {
    name: "nv_inference_request_success",
    help: "Number of successful inference requests, all batch sizes",
    type: "counter",
    value: ({ totals }) => totals.success.count,
  },
  {
    name: "nv_inference_request_failure",
    help: "Number of failed inference requests, all batch sizes",
    type: "counter",
    value: ({ totals }) =>
      Object.fromEntries(failureReasons.map((reason) => [reason, totals.failures[reason]])),
  },
  {
    name: "nv_inference_count",
    help: "Number of inferences performed (does not include cached requests)",
    type: "counter",
    value: ({ totals }) => totals.inferenceCount,
  },
  {
    name: "nv_inference_exec_count",
    help: "Number of model executions performed (does not include cached requests)",
    type: "counter",
    value: ({ totals }) => totals.executionCount,
  },
  {
    name: "nv_inference_request_duration_us",
    help: "Cumulative inference request duration in microseconds (includes cached requests)",
    type: "counter",
    value: ({ totals }) => microseconds(totals.success.ns),
  },
  {
    name: "nv_inference_queue_duration_us",
    help: "Cumulative inference queuing duration in microseconds (includes cached requests)",
    type: "counter",
    value: ({ totals }) => microseconds(totals.queue.ns),
  },
  {
    name: "nv_inference_compute_input_duration_us",
    help: "Cumulative compute input duration in microseconds (does not include cached requests)",
    type: "counter",
    value: ({ totals }) => microseconds(totals.computeInput.ns),
  },
  {
    name: "nv_inference_compute_infer_duration_us",
    help: "Cumulative compute inference duration in microseconds (does not include cached requests)",
    type: "counter",
    value: ({ totals }) => microseconds(totals.computeInfer.ns),
  },
  {
    name: "nv_inference_compute_output_duration_us",
    help: "Cumulative inference compute output duration in microseconds (does not include cached requests)",
    type: "counter",
    value: ({ totals }) => microseconds(totals.computeOutput.ns),
  },
  {
    name: "nv_inference_pending_request_count",
    help: "Instantaneous number of pending requests awaiting execution per-model.",
    type: "gauge",
    value: (model) => model.pendingRequests,
  },
  {
    name: "nv_model_load_duration_secs",
    help: "Model load time in seconds",
    type: "gauge",
    value: (model) => model.loadSeconds,
  },
];

/** Families that `counter_latencies=false` leaves out. */
const latencyCounter = /_duration_us$/;

/** Triton's words for the summaries. */
const summaryHelp: Readonly<Record<LatencyPart, string>> = {
  request: "Summary of inference request duration in microseconds (includes cached requests)",
  queue: "Summary of inference queuing duration in microseconds (includes cached requests)",
  compute_input:
    "Cumulative compute input duration in microseconds (does not include cached requests)",
  compute_infer:
    "Cumulative compute inference duration in microseconds (does not include cached requests)",
  compute_output:
    "Cumulative inference compute output duration in microseconds (does not include cached requests)",
};

/** Triton's metrics of the loaded models, in Prometheus' text format. */
export function renderTritonMetrics(
  { models }: Pick<ModelRegistry, "models">,
  settings: MetricsSettings = metricsSettings([]),
): string {
  const lines = [
    ...families
      .filter(({ name }) => settings.counterLatencies || !latencyCounter.test(name))
      .flatMap((family) => familyLines(family, models)),
    ...(settings.histogramLatencies ? histogramLines(models) : []),
    ...(settings.summaryLatencies
      ? latencyParts.flatMap((part) => summaryLines(part, models, settings.summaryQuantiles))
      : []),
  ];
  return `${lines.join("\n")}\n`;
}

function familyLines(
  { name, help, type, value }: Family,
  models: readonly ServedModel[],
): readonly string[] {
  return [
    ...headLines(name, help, type),
    ...models.flatMap((model) => {
      const labels = labelsOf(model);
      const current = value(model);
      if (typeof current === "number") return [`${name}{${labels}} ${current}`];
      return Object.entries(current).map(
        ([reason, count]) => `${name}{${labels},reason="${reason}"} ${count}`,
      );
    }),
  ];
}

function histogramLines(models: readonly ServedModel[]): readonly string[] {
  const name = "nv_inference_first_response_histogram_ms";
  return [
    ...headLines(name, "Duration from request to first response in milliseconds", "histogram"),
    ...models.flatMap((model) => {
      const labels = labelsOf(model);
      const { count, sum, bounds, cumulative } = model.totals.firstResponse;
      return [
        `${name}_count{${labels}} ${count}`,
        `${name}_sum{${labels}} ${sum}`,
        ...bounds.map(
          (bound, index) => `${name}_bucket{${labels},le="${bound}"} ${cumulative[index]}`,
        ),
        `${name}_bucket{${labels},le="+Inf"} ${count}`,
      ];
    }),
  ];
}

function summaryLines(
  part: LatencyPart,
  models: readonly ServedModel[],
  quantiles: readonly number[],
): readonly string[] {
  const name = `nv_inference_${part}_summary_us`;
  return [
    ...headLines(name, summaryHelp[part], "summary"),
    ...models.flatMap((model) => {
      const labels = labelsOf(model);
      const summary = model.totals.summaries[part];
      const values = summary.quantiles(quantiles);
      return [
        `${name}_count{${labels}} ${summary.count}`,
        `${name}_sum{${labels}} ${Math.floor(summary.sum)}`,
        ...quantiles.map((quantile, index) => {
          const value = values[index]!;
          const text = Number.isNaN(value) ? "NaN" : Math.floor(value);
          return `${name}{${labels},quantile="${quantile}"} ${text}`;
        }),
      ];
    }),
  ];
}

function headLines(name: string, help: string, type: string): readonly string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}

function labelsOf(model: ServedModel): string {
  return `model="${escaped(model.name)}",version="${escaped(model.version)}"`;
}

function microseconds(ns: number): number {
  return Math.floor(ns / 1000);
}

function escaped(label: string): string {
  return label.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
