import { dcgmMetrics } from "../contract/metrics/dcgm-metrics.ts";
import { embedMetrics, processMetrics } from "../contract/metrics/embed-metrics.ts";
import { tritonMetrics } from "../contract/metrics/triton-metrics.ts";
import {
  embedding,
  errorRatio,
  histogramMean,
  imagesPerSecond,
  meanOf,
  percentile,
  rate,
  recorded,
  usdPer1000Images,
} from "./expressions.ts";

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
const window = "$__rate_interval";
const embed = 'namespace=~"$namespace",job=~"$job"';
const triton = 'namespace=~"$namespace",job=~"$triton"';
const gpu = 'UUID=~"$gpu"';

const { requestSeconds, queueSeconds, inferSeconds, decodeSeconds, overheadSeconds, batchSize } =
  embedMetrics;
const latencies = [0.5, 0.95, 0.99].map((quantile) => [
  `p${quantile * 100}`,
  percentile(quantile, requestSeconds, embedding(embed), window),
]);

const service: Dashboard = {
  name: "clipstack-service",
  title: "clipstack: service",
  variables: ["namespace", "job"],
  rows: {
    Now: [
      {
        title: "Requests per second",
        unit: "reqps",
        kind: "stat",
        queries: { requests: rate(embedMetrics.requests, embedding(embed), window) },
      },
      {
        title: "Failed requests",
        unit: "percentunit",
        kind: "stat",
        description: "5xx and 429.",
        queries: { failed: errorRatio(embed, window) },
      },
      {
        title: "Latency, 99th percentile",
        unit: "s",
        kind: "stat",
        queries: { p99: percentile(0.99, requestSeconds, embedding(embed), window) },
      },
      {
        title: "Images per second",
        unit: "short",
        kind: "stat",
        queries: { images: imagesPerSecond(embed, window) },
      },
    ],
    "Rate and errors": [
      {
        title: "Requests by status",
        unit: "reqps",
        queries: { "{{status}}": rate(embedMetrics.requests, embedding(embed), window, "status") },
      },
      {
        title: "Requests by route and model",
        unit: "reqps",
        queries: {
          "{{route}} {{model}}": rate(
            embedMetrics.requests,
            embedding(embed),
            window,
            "route, model",
          ),
        },
      },
      {
        title: "Images and texts per second",
        unit: "short",
        queries: {
          "images {{model}}": rate(embedMetrics.images, embed, window, "model"),
          "texts {{model}}": rate(embedMetrics.texts, embed, window, "model"),
        },
      },
    ],
    Latency: [
      { title: "Latency of requests", unit: "s", queries: Object.fromEntries(latencies) },
      {
        title: "Mean time by stage",
        unit: "s",
        description: "Queue, inference and overhead of a request; decoding of one image.",
        queries: {
          decode: histogramMean(decodeSeconds, embed, window),
          queue: histogramMean(queueSeconds, embed, window),
          inference: histogramMean(inferSeconds, embed, window),
          overhead: histogramMean(overheadSeconds, embed, window),
        },
      },
      {
        title: "Queue time, 99th percentile",
        unit: "s",
        queries: {
          "{{model}} {{modality}}": percentile(
            0.99,
            queueSeconds,
            embed,
            window,
            "model, modality",
          ),
        },
      },
      {
        title: "Mean batch size",
        unit: "short",
        queries: {
          "{{model}} {{modality}}": histogramMean(batchSize, embed, window, "model, modality"),
        },
      },
    ],
    Saturation: [
      {
        title: "Accepted images and texts without a response",
        unit: "short",
        queries: { "{{instance}}": `${embedMetrics.pendingImages}{${embed}}` },
      },
      {
        title: "Bytes of admitted bodies",
        unit: "bytes",
        queries: { "{{instance}}": `${embedMetrics.pendingBytes}{${embed}}` },
      },
      {
        title: "CPU cores in use",
        unit: "short",
        queries: { "{{instance}}": rate(processMetrics.cpuSeconds, embed, window, "instance") },
      },
      {
        title: "Event loop delay, 99th percentile",
        unit: "s",
        queries: { "{{instance}}": `${processMetrics.eventLoopLag}{${embed}}` },
      },
      {
        title: "Resident memory",
        unit: "bytes",
        queries: { "{{instance}}": `${processMetrics.residentBytes}{${embed}}` },
      },
      {
        title: "Uptime",
        unit: "s",
        queries: { "{{instance}}": `time() - ${processMetrics.startSeconds}{${embed}}` },
      },
    ],
    "Triton servers behind the gateway": [
      {
        title: "In rotation",
        unit: "short",
        queries: {
          "{{instance}}: {{target}} {{model}}": `${embedMetrics.tritonHealthy}{${embed}}`,
        },
      },
      {
        title: "Calls per second",
        unit: "reqps",
        queries: {
          "{{target}}": rate(embedMetrics.tritonRequests, embed, window, "target"),
          "{{target}} failed": rate(embedMetrics.tritonFailures, embed, window, "target"),
        },
      },
      {
        title: "Ejections in an hour",
        unit: "short",
        queries: {
          ejections: `sum(increase(${embedMetrics.tritonEjections}{${embed}}[1h])) or vector(0)`,
        },
      },
      {
        title: "Server ready",
        unit: "bool_yes_no",
        kind: "stat",
        queries: { "{{instance}}": `${embedMetrics.ready}{${embed}}` },
      },
    ],
  },
};

const byModel = "instance, model";
const perRequest = (sum: string) => meanOf([sum, tritonMetrics.success], triton, window, byModel);

const tritonDashboard: Dashboard = {
  name: "clipstack-triton",
  title: "clipstack: Triton",
  variables: ["namespace", "triton"],
  rows: {
    Rate: [
      {
        title: "Inferences per second",
        unit: "short",
        queries: { "{{instance}} {{model}}": rate(tritonMetrics.count, triton, window, byModel) },
      },
      {
        title: "Successful requests per second",
        unit: "reqps",
        queries: { "{{instance}} {{model}}": rate(tritonMetrics.success, triton, window, byModel) },
      },
      {
        title: "Failed requests per second",
        unit: "reqps",
        queries: {
          "{{model}} {{reason}}": rate(tritonMetrics.failure, triton, window, "model, reason"),
        },
      },
    ],
    "Queue and batches": [
      {
        title: "Mean queue time per request",
        unit: "µs",
        queries: { "{{instance}} {{model}}": perRequest(tritonMetrics.queueMicroseconds) },
      },
      {
        title: "Pending requests",
        unit: "short",
        queries: { "{{instance}} {{model}}": `${tritonMetrics.pendingRequests}{${triton}}` },
      },
      {
        title: "Mean batch size",
        unit: "short",
        queries: {
          "{{instance}} {{model}}": meanOf(
            [tritonMetrics.count, tritonMetrics.executions],
            triton,
            window,
            byModel,
          ),
        },
      },
    ],
    "Time per request, mean": [
      {
        title: "Inference",
        unit: "µs",
        queries: { "{{instance}} {{model}}": perRequest(tritonMetrics.computeInferMicroseconds) },
      },
      {
        title: "Copying inputs and outputs",
        unit: "µs",
        queries: {
          "{{instance}} {{model}} input": perRequest(tritonMetrics.computeInputMicroseconds),
          "{{instance}} {{model}} output": perRequest(tritonMetrics.computeOutputMicroseconds),
        },
      },
      {
        title: "Whole request",
        unit: "µs",
        queries: { "{{instance}} {{model}}": perRequest(tritonMetrics.requestMicroseconds) },
      },
      {
        title: "Executions per second",
        unit: "short",
        queries: {
          "{{instance}} {{model}}": rate(tritonMetrics.executions, triton, window, byModel),
        },
      },
    ],
  },
};

const legend = "{{Hostname}}{{hostname}} GPU {{gpu}}";
const field = (name: string) => `${name}{${gpu}}`;

const gpuDashboard: Dashboard = {
  name: "clipstack-gpu",
  title: "clipstack: GPUs",
  variables: ["gpu"],
  rows: {
    Use: [
      {
        title: "Utilisation",
        unit: "percent",
        description: "Time in which a kernel ran.",
        queries: { [legend]: field(dcgmMetrics.utilization) },
      },
      {
        title: "Memory in use",
        unit: "mbytes",
        queries: { [legend]: field(dcgmMetrics.memoryUsed) },
      },
      {
        title: "Memory in use, fraction",
        unit: "percentunit",
        queries: {
          [legend]: `${field(dcgmMetrics.memoryUsed)} / (${field(dcgmMetrics.memoryUsed)} + ${field(dcgmMetrics.memoryFree)})`,
        },
      },
    ],
    "Power and clocks": [
      {
        title: "Power",
        unit: "watt",
        queries: {
          [legend]: field(dcgmMetrics.power),
          [`${legend} limit`]: field(dcgmMetrics.powerLimit),
        },
      },
      {
        title: "Temperature",
        unit: "celsius",
        queries: { [legend]: field(dcgmMetrics.temperature) },
      },
      {
        title: "Clocks",
        unit: "hertz",
        queries: {
          [`${legend} SM`]: `${field(dcgmMetrics.smClock)} * 1e6`,
          [`${legend} memory`]: `${field(dcgmMetrics.memoryClock)} * 1e6`,
        },
      },
      {
        title: "Reasons for lower clocks",
        unit: "short",
        description: "Samples in DCGM exporter's window in which the GPU reported the reason.",
        queries: { [`${legend} {{clock_event}}`]: field(dcgmMetrics.clockEvents) },
      },
    ],
    Errors: [
      {
        title: "Last XID error",
        unit: "none",
        kind: "stat",
        description: "0: none. 79: the GPU has fallen off the bus.",
        queries: { [legend]: field(dcgmMetrics.xid) },
      },
    ],
  },
};

const cost: Dashboard = {
  name: "clipstack-cost",
  title: "clipstack: cost",
  variables: ["namespace", "job"],
  rows: {
    Cost: [
      {
        title: "Price per hour",
        unit: "currencyUSD",
        kind: "stat",
        description: "From the environment.",
        queries: { price: `sum(${recorded.usdPerHour})` },
      },
      {
        title: "Price per 30 days",
        unit: "currencyUSD",
        kind: "stat",
        queries: { price: `sum(${recorded.usdPerHour}) * 24 * 30` },
      },
      {
        title: "Cost per 1,000 images, last hour",
        unit: "currencyUSD",
        kind: "stat",
        description: "Too high in the first hour of the metrics.",
        queries: { cost: usdPer1000Images(embed, "1h") },
      },
      {
        title: "Budget per 1,000 images",
        unit: "currencyUSD",
        kind: "stat",
        description: "From the environment; 0 if not set.",
        queries: { budget: `sum(${recorded.budgetUsdPer1000Images})` },
      },
      {
        title: "Cost per 1,000 images",
        unit: "currencyUSD",
        queries: {
          cost: usdPer1000Images(embed, window),
          budget: `sum(${recorded.budgetUsdPer1000Images})`,
        },
      },
      {
        title: "Images per hour",
        unit: "short",
        queries: { images: `${imagesPerSecond(embed, window)} * 3600` },
      },
    ],
  },
};

const capacity: Dashboard = {
  name: "clipstack-capacity",
  title: "clipstack: capacity",
  variables: ["namespace", "job"],
  rows: {
    Capacity: [
      {
        title: "Images per second, measured and predicted",
        unit: "short",
        description: "Predicted: capacity at saturation, from the environment.",
        queries: {
          measured: imagesPerSecond(embed, window),
          predicted: `sum(${recorded.predictedImagesPerSecond})`,
        },
      },
      {
        title: "Use of the predicted capacity",
        unit: "percentunit",
        queries: {
          used: `${imagesPerSecond(embed, window)} / sum(${recorded.predictedImagesPerSecond} > 0)`,
        },
      },
      {
        title: "Highest images per second, last day",
        unit: "short",
        kind: "stat",
        queries: { highest: `max_over_time((${imagesPerSecond(embed, "5m")})[1d:5m])` },
      },
      {
        title: "Images and texts that wait",
        unit: "short",
        queries: { waiting: `sum(${embedMetrics.pendingImages}{${embed}})` },
      },
    ],
  },
};

export const dashboards: readonly Dashboard[] = [
  service,
  tritonDashboard,
  gpuDashboard,
  cost,
  capacity,
];
