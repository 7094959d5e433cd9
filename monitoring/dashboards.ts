import { dcgmMetrics } from "../contract/metrics/dcgm-metrics.ts";
import { embedMetrics } from "../contract/metrics/embed-metrics.ts";
import { tritonMetrics } from "../contract/metrics/triton-metrics.ts";
import { type Dashboard, embed, gpu, triton, window } from "./dashboard.ts";
import { imagesPerSecond, meanOf, rate, recorded, usdPer1000Images } from "./expressions.ts";
import { service } from "./service-dashboard.ts";

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
        queries: { "{{reason}}": rate(tritonMetrics.failure, triton, window, "reason") },
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
        title: "Executions per second",
        unit: "short",
        queries: {
          "{{instance}} {{model}}": rate(tritonMetrics.executions, triton, window, byModel),
        },
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
    Now: [
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
    ],
    Cost: [
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
