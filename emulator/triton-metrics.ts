import { Counter, Gauge, Registry } from "prom-client";
import { failureReasons } from "./model-counters.ts";
import type { ModelRegistry } from "./model-registry.ts";
import type { ServedModel } from "./served-model.ts";

/** Content type of Prometheus' text format. */
export const metricsContentType = Registry.PROMETHEUS_CONTENT_TYPE;

interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge";
  /** Value, or values by label `reason`. */
  value(model: ServedModel): number | Readonly<Record<string, number>>;
}

const families: readonly Family[] = [
  {
    name: "nv_inference_request_success",
    help: "Number of successful inference requests, all batch sizes",
    type: "counter",
    value: ({ counters }) => counters.success.count,
  },
  {
    name: "nv_inference_request_failure",
    help: "Number of failed inference requests, all batch sizes",
    type: "counter",
    value: ({ counters }) =>
      Object.fromEntries(failureReasons.map((reason) => [reason, counters.failures[reason]])),
  },
  {
    name: "nv_inference_count",
    help: "Number of inferences performed (does not include cached requests)",
    type: "counter",
    value: ({ counters }) => counters.inferenceCount,
  },
  {
    name: "nv_inference_exec_count",
    help: "Number of model executions performed (does not include cached requests)",
    type: "counter",
    value: ({ counters }) => counters.executionCount,
  },
  {
    name: "nv_inference_request_duration_us",
    help: "Cumulative inference request duration in microseconds (includes cached requests)",
    type: "counter",
    value: ({ counters }) => microseconds(counters.success.ns),
  },
  {
    name: "nv_inference_queue_duration_us",
    help: "Cumulative inference queuing duration in microseconds (includes cached requests)",
    type: "counter",
    value: ({ counters }) => microseconds(counters.queue.ns),
  },
  {
    name: "nv_inference_compute_input_duration_us",
    help: "Cumulative compute input duration in microseconds (does not include cached requests)",
    type: "counter",
    value: ({ counters }) => microseconds(counters.computeInput.ns),
  },
  {
    name: "nv_inference_compute_infer_duration_us",
    help: "Cumulative compute inference duration in microseconds (does not include cached requests)",
    type: "counter",
    value: ({ counters }) => microseconds(counters.computeInfer.ns),
  },
  {
    name: "nv_inference_compute_output_duration_us",
    help: "Cumulative inference compute output duration in microseconds (does not include cached requests)",
    type: "counter",
    value: ({ counters }) => microseconds(counters.computeOutput.ns),
  },
  {
    name: "nv_inference_pending_request_count",
    help: "Instantaneous number of pending requests awaiting execution per-model.",
    type: "gauge",
    value: (model) => model.pendingRequests,
  },
];

/** Triton's metrics of the loaded models, in Prometheus' text format. */
export async function renderTritonMetrics({
  models,
}: Pick<ModelRegistry, "models">): Promise<string> {
  const registry = new Registry();
  for (const { name, help, type, value } of families) {
    const labelNames = ["model", "version", "reason"];
    const metric = new metricTypes[type]({ name, help, labelNames, registers: [registry] });
    for (const model of models) {
      const labels = { model: model.name, version: model.version };
      const current = value(model);
      if (typeof current === "number") metric.inc(labels, current);
      else
        for (const [reason, count] of Object.entries(current))
          metric.inc({ ...labels, reason }, count);
    }
  }
  return await registry.metrics();
}

const metricTypes = { counter: Counter, gauge: Gauge } as const;

function microseconds(ns: number): number {
  return Math.floor(ns / 1000);
}
