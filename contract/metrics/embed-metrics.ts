import { type Metric, namesOf } from "./metric.ts";

/** Upper bounds in seconds of the histograms of times, from a tenth of a millisecond to ten seconds. */
export const secondsBuckets = [
  0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25,
  0.5, 1, 2.5, 5, 10,
] as const;

/** Upper bounds of the histogram of batch sizes. */
export const batchBuckets = [1, 2, 4, 8, 12, 16, 24, 32, 64, 128] as const;

const byTower = ["model", "modality"] as const;
const byUpstream = ["target", "model"] as const;

/** Metrics of the embed server, which registers them from this table. Metrics of upstreams exist only with the backend `triton`. */
export const embedMetricTable = {
  requests: {
    name: "clipstack_embed_requests_total",
    type: "counter",
    unit: "requests",
    labels: ["route", "status", "model", "client"],
    help: "Requests by route, status, model and client; 499 if the client disconnected.",
  },
  requestSeconds: {
    name: "clipstack_embed_request_duration_seconds",
    type: "histogram",
    unit: "seconds",
    labels: ["route", "model"],
    help: "Duration of requests, by route and model.",
  },
  images: {
    name: "clipstack_embed_images_total",
    type: "counter",
    unit: "images",
    labels: ["model"],
    help: "Embedded images.",
  },
  texts: {
    name: "clipstack_embed_texts_total",
    type: "counter",
    unit: "texts",
    labels: ["model"],
    help: "Embedded texts.",
  },
  decodeSeconds: {
    name: "clipstack_embed_decode_duration_seconds",
    type: "histogram",
    unit: "seconds",
    labels: ["model"],
    help: "Time to decode and resize one image.",
  },
  queueSeconds: {
    name: "clipstack_embed_queue_duration_seconds",
    type: "histogram",
    unit: "seconds",
    labels: byTower,
    help: "Time that a request waited for its batch.",
  },
  inferSeconds: {
    name: "clipstack_embed_infer_duration_seconds",
    type: "histogram",
    unit: "seconds",
    labels: byTower,
    help: "Time of one execution of the model, or of one call to Triton with the backend triton.",
  },
  overheadSeconds: {
    name: "clipstack_embed_overhead_duration_seconds",
    type: "histogram",
    unit: "seconds",
    labels: byTower,
    help: "Time of a request outside downloading, decoding, queue and inference.",
  },
  batchSize: {
    name: "clipstack_embed_batch_size",
    type: "histogram",
    unit: "images or texts",
    labels: byTower,
    help: "Images or texts per execution of the model.",
  },
  ready: {
    name: "clipstack_embed_ready",
    type: "gauge",
    unit: "0 or 1",
    labels: [],
    help: "1 if the server is ready, as in GET /readyz.",
  },
  pendingImages: {
    name: "clipstack_embed_pending_images",
    type: "gauge",
    unit: "images and texts",
    labels: [],
    help: "Accepted images and texts without a response.",
  },
  pendingBytes: {
    name: "clipstack_embed_pending_bytes",
    type: "gauge",
    unit: "bytes",
    labels: [],
    help: "Bytes of admitted request bodies, and of their responses until they are sent.",
  },
  fileValid: {
    name: "clipstack_embed_file_valid",
    type: "gauge",
    unit: "0 or 1",
    labels: ["file"],
    help: "1 if the present content of the keys or the certificate is in use, 0 if it is invalid and the previous content is.",
  },
  certificateExpiry: {
    name: "clipstack_embed_tls_certificate_expiry_timestamp_seconds",
    type: "gauge",
    unit: "seconds",
    labels: [],
    help: "End of the validity of the server's certificate, in seconds since 1970; only with TLS.",
  },
  tritonRequests: {
    name: "clipstack_embed_triton_requests_total",
    type: "counter",
    unit: "calls",
    labels: byUpstream,
    help: "Calls to Triton servers including retries, by target and model.",
  },
  tritonFailures: {
    name: "clipstack_embed_triton_failures_total",
    type: "counter",
    unit: "calls",
    labels: byUpstream,
    help: "Calls to Triton servers without a response or with an error, by target and model.",
  },
  tritonHealthy: {
    name: "clipstack_embed_triton_healthy",
    type: "gauge",
    unit: "addresses",
    labels: byUpstream,
    help: "Addresses of a target in rotation, by model.",
  },
  tritonEjections: {
    name: "clipstack_embed_triton_ejections_total",
    type: "counter",
    unit: "ejections",
    labels: byUpstream,
    help: "Times that an address of a target was taken out of rotation because its calls failed, by model.",
  },
} as const satisfies Readonly<Record<string, Metric>>;

export type EmbedMetricKey = keyof typeof embedMetricTable;

export const embedMetrics = namesOf(embedMetricTable);

/** Metrics of the server's process that dashboards use, from prom-client, which adds others with the same prefixes. */
export const processMetricTable = {
  cpuSeconds: {
    name: "process_cpu_seconds_total",
    type: "counter",
    unit: "seconds",
    labels: [],
    help: "Total user and system CPU time spent in seconds.",
  },
  residentBytes: {
    name: "process_resident_memory_bytes",
    type: "gauge",
    unit: "bytes",
    labels: [],
    help: "Resident memory size in bytes.",
  },
  startSeconds: {
    name: "process_start_time_seconds",
    type: "gauge",
    unit: "seconds",
    labels: [],
    help: "Start time of the process since unix epoch in seconds.",
  },
  eventLoopLag: {
    name: "nodejs_eventloop_lag_p99_seconds",
    type: "gauge",
    unit: "seconds",
    labels: [],
    help: "The 99th percentile of the recorded event loop delays.",
  },
} as const satisfies Readonly<Record<string, Metric>>;

/** Prefixes of the names of prom-client's metrics of the process. */
export const processPrefixes = ["process_", "nodejs_"] as const;

export const processMetrics = namesOf(processMetricTable);
