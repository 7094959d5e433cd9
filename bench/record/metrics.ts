import { formatMs, formatPercent, formatRate } from "../../report/document/number-format.ts";
import type { Round } from "../../target/load/round.ts";
import type { GpuReadingName } from "../../target/readings/gpu-readings.ts";
import { mean } from "../../target/stats/statistics.ts";
import type { LoadPoint } from "./bench-record.ts";
import { type TimePartId, timePartNames, timeParts } from "./time-parts.ts";

/** Metric of a load point: one row here, a collector and a test. Tables and the comparison use the rows. */
export interface Metric {
  /** `result`: throughput and latency. `time`: part of the mean latency. `server`: batching and GPUs. */
  readonly group: "result" | "time" | "server";
  /** Column heading with the unit. */
  readonly label: string;
  /** Explanation of the heading. */
  readonly title?: string;
  readonly better: "higher" | "lower" | "neither";
  /** Value; absent if it was not measured. */
  readonly read: (point: LoadPoint) => number | undefined;
  readonly format: (value: number) => string;
  /** Reason not to rely on the value; such a value is marked with `*` and not compared. */
  readonly caution?: (point: LoadPoint) => string | undefined;
  /**
   * Value of one round, for confidence intervals.
   *
   * @default - not compared
   */
  readonly compared?: (round: Round) => number | undefined;
}

export const metrics = {
  throughput: {
    group: "result",
    label: "images/s",
    better: "higher",
    read: ({ imagesPerSecond }) => imagesPerSecond,
    format: formatRate,
    compared: ({ imagesPerSecond }) => imagesPerSecond,
  },
  p50: percentile("p50"),
  p95: percentile("p95"),
  p99: {
    ...percentile("p99"),
    caution: ({ latencyMs }) =>
      latencyMs?.p99Reliable === false ? "from too few requests; close to the maximum" : undefined,
  },
  max: {
    group: "result",
    label: "max ms",
    better: "lower",
    read: ({ latencyMs }) => latencyMs?.max,
    format: formatMs,
  },
  mean: {
    group: "time",
    label: "mean ms",
    title: "Mean latency at the client, the sum of its parts",
    better: "lower",
    read: ({ latencyMs }) => latencyMs?.mean,
    format: formatMs,
  },
  networkTime: timePart("network"),
  decodeTime: timePart("decode"),
  queueTime: timePart("queue"),
  inputTime: timePart("input"),
  modelTime: timePart("infer"),
  outputTime: timePart("output"),
  otherServerTime: timePart("server"),
  averageBatch: {
    group: "server",
    label: "images per execution",
    title: "Average batch size with which the model was executed",
    better: "neither",
    read: ({ server }) => server?.averageBatch,
    format: (value) => value.toFixed(1),
  },
  gpuUtilization: {
    group: "server",
    label: "GPU utilisation",
    title: "Mean over all GPUs",
    better: "neither",
    read: (point) => {
      const values = gpuValues(point, "utilization");
      return values.length === 0 ? undefined : mean(values);
    },
    format: formatPercent,
  },
  gpuPower: {
    group: "server",
    label: "GPU power W",
    title: "Mean power draw, all GPUs together",
    better: "lower",
    read: (point) => sum(gpuValues(point, "powerWatts")),
    format: (value) => value.toFixed(0),
  },
} as const satisfies Readonly<Record<string, Metric>>;

export type MetricName = keyof typeof metrics;

/** Metrics that a comparison of two records judges. */
export type ComparedMetric = {
  [Name in MetricName]: (typeof metrics)[Name] extends { readonly compared: unknown }
    ? Name
    : never;
}[MetricName];

export const metricNames = Object.keys(metrics) as readonly MetricName[];

export const comparedMetrics = metricNames.filter(
  (name): name is ComparedMetric => "compared" in metrics[name],
);

/** Metric by name, with its optional properties. */
export const metricOf = (name: MetricName): Metric => metrics[name];

/** Percentile of the latency, compared by its values in the rounds. */
function percentile(name: "p50" | "p95" | "p99") {
  return {
    group: "result",
    label: `${name} ms`,
    better: "lower",
    read: ({ latencyMs }: LoadPoint) => latencyMs?.[name],
    format: formatMs,
    compared: ({ latencyMs }: Round) => latencyMs?.[name],
  } as const;
}

function timePart(id: TimePartId): Omit<Metric, "compared"> {
  const { label, title }: { readonly label: string; readonly title?: string } = timePartNames[id];
  return {
    group: "time",
    label: `${label} ms`,
    title,
    better: "lower",
    read: (point) => timeParts(point).find((part) => part.id === id)?.ms,
    format: formatMs,
  };
}

function gpuValues({ gpu }: LoadPoint, name: GpuReadingName): readonly number[] {
  return (gpu?.gpus ?? []).flatMap((readings) => readings[name] ?? []);
}

const sum = (values: readonly number[]) =>
  values.length === 0 ? undefined : values.reduce((total, value) => total + value, 0);
