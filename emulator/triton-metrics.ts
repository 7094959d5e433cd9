import { Counter, Gauge, Registry } from "prom-client";
import { tritonModelMetricTable } from "../contract/metrics/triton-metrics.ts";
import { failureReasons } from "./model-counters.ts";
import type { ModelRegistry } from "./model-registry.ts";
import type { ServedModel } from "./served-model.ts";

/** Content type of Prometheus' text format. */
export const metricsContentType = Registry.PROMETHEUS_CONTENT_TYPE;

type Value = number | Readonly<Record<string, number>>;

/** Values of one model, or values by label `reason`, of each metric of the contract's table. */
const values: Readonly<Record<keyof typeof tritonModelMetricTable, (model: ServedModel) => Value>> =
  {
    success: ({ counters }) => counters.success.count,
    failure: ({ counters }) =>
      Object.fromEntries(failureReasons.map((reason) => [reason, counters.failures[reason]])),
    count: ({ counters }) => counters.inferenceCount,
    executions: ({ counters }) => counters.executionCount,
    requestMicroseconds: ({ counters }) => microseconds(counters.success.ns),
    queueMicroseconds: ({ counters }) => microseconds(counters.queue.ns),
    computeInputMicroseconds: ({ counters }) => microseconds(counters.computeInput.ns),
    computeInferMicroseconds: ({ counters }) => microseconds(counters.computeInfer.ns),
    computeOutputMicroseconds: ({ counters }) => microseconds(counters.computeOutput.ns),
    pendingRequests: (model) => model.pendingRequests,
  };

/** Triton's metrics of the loaded models, in Prometheus' text format. */
export async function renderTritonMetrics({
  models,
}: Pick<ModelRegistry, "models">): Promise<string> {
  const registry = new Registry();
  for (const [key, value] of Object.entries(values)) {
    const {
      name,
      help,
      type,
      labels: names,
    } = tritonModelMetricTable[key as keyof typeof tritonModelMetricTable];
    const labelNames = [...names];
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
