import { embedMetrics, processMetrics } from "../contract/metrics/embed-metrics.ts";
import { type Dashboard, embed, window } from "./dashboard.ts";
import {
  embedding,
  errorRatio,
  histogramMean,
  imagesPerSecond,
  percentile,
  rate,
} from "./expressions.ts";

/** Dashboard of the embed server: rate, errors, latency and saturation. */

const { requestSeconds, queueSeconds, inferSeconds, decodeSeconds, overheadSeconds, batchSize } =
  embedMetrics;
const latencies = [0.5, 0.95, 0.99].map((quantile) => [
  `p${quantile * 100}`,
  percentile(quantile, requestSeconds, embedding(embed), window),
]);

export const service: Dashboard = {
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
    ],
    Servers: [
      {
        title: "Ready",
        unit: "bool_yes_no",
        kind: "stat",
        queries: { "{{instance}}": `${embedMetrics.ready}{${embed}}` },
      },
      {
        title: "Uptime",
        unit: "s",
        queries: { "{{instance}}": `time() - ${processMetrics.startSeconds}{${embed}}` },
      },
    ],
    "Triton servers behind the gateway": [
      {
        title: "Addresses in rotation",
        unit: "short",
        description: "Of the gateway with the fewest; 0: it sends the target no requests.",
        queries: {
          "{{target}} {{model}}": `min by (target, model) (${embedMetrics.tritonHealthy}{${embed}})`,
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
    ],
  },
};
