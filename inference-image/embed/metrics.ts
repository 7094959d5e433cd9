import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { TritonPoolObserver } from "../../client/triton/triton-pool.ts";
import { embedMetrics } from "../../contract/embed-api.ts";
import type { EmbedderObserver } from "./embedder.ts";

/** Metrics of one embed server, in a registry of its own. */
export interface EmbedMetrics extends EmbedderObserver, TritonPoolObserver {
  request(route: string, status: number, seconds: number): void;
  decoded(seconds: number): void;
  embedded(images: number): void;
  /** Time of a request outside decoding, queue and inference. */
  overhead(seconds: number): void;
  /** Number of accepted images; negative once they have a response. */
  pending(images: number): void;
  /** Sets the function that reads the bytes of admitted bodies at each scrape. */
  pendingBytesFrom(read: () => number): void;
  readonly contentType: string;
  text(): Promise<string>;
}

/** Upper bounds in seconds, from a tenth of a millisecond to ten seconds. */
const seconds = [
  0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25,
  0.5, 1, 2.5, 5, 10,
];

export function createMetrics(): EmbedMetrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return {
    ...requestMetrics(registry),
    ...stageMetrics(registry),
    ...pendingImages(registry),
    ...tritonMetrics(registry),
    ...pendingBytes(registry),
    contentType: registry.contentType,
    text: () => registry.metrics(),
  };
}

function requestMetrics(registry: Registry): Pick<EmbedMetrics, "request" | "embedded"> {
  const registers = [registry];
  const requests = new Counter({
    name: embedMetrics.requests,
    help: "Requests by route and status; 499 if the client disconnected.",
    labelNames: ["route", "status"],
    registers,
  });
  const requestSeconds = new Histogram({
    name: embedMetrics.requestSeconds,
    help: "Duration of requests, by route.",
    labelNames: ["route"],
    buckets: seconds,
    registers,
  });
  const images = new Counter({ name: embedMetrics.images, help: "Embedded images.", registers });
  return {
    request(route, status, duration) {
      requests.inc({ route, status });
      requestSeconds.observe({ route }, duration);
    },
    embedded: (count) => images.inc(count),
  };
}

function stageMetrics(
  registry: Registry,
): Pick<EmbedMetrics, "decoded" | "queued" | "batch" | "overhead"> {
  const registers = [registry];
  const histogram = (name: string, help: string) =>
    new Histogram({ name, help, buckets: seconds, registers });
  const decodeSeconds = histogram(
    embedMetrics.decodeSeconds,
    "Time to decode and resize one image.",
  );
  const queueSeconds = histogram(
    embedMetrics.queueSeconds,
    "Time that a request waited for its batch.",
  );
  const inferSeconds = histogram(
    embedMetrics.inferSeconds,
    "Time of one execution of the model, or of one call to Triton with the backend triton.",
  );
  const overheadSeconds = histogram(
    embedMetrics.overheadSeconds,
    "Time of a request outside decoding, queue and inference.",
  );
  const batchSize = new Histogram({
    name: embedMetrics.batchSize,
    help: "Images per execution of the model.",
    buckets: [1, 2, 4, 8, 12, 16, 24, 32, 64, 128],
    registers,
  });
  return {
    decoded: (duration) => decodeSeconds.observe(duration),
    queued: (duration) => queueSeconds.observe(duration),
    batch(batch) {
      batchSize.observe(batch.images);
      inferSeconds.observe(batch.inferSeconds);
    },
    overhead: (duration) => overheadSeconds.observe(duration),
  };
}

function pendingImages(registry: Registry): Pick<EmbedMetrics, "pending"> {
  const gauge = new Gauge({
    name: embedMetrics.pendingImages,
    help: "Accepted images without a response.",
    registers: [registry],
  });
  return { pending: (count) => gauge.inc(count) };
}

function pendingBytes(registry: Registry): Pick<EmbedMetrics, "pendingBytesFrom"> {
  let readBytes = () => 0;
  new Gauge({
    name: embedMetrics.pendingBytes,
    help: "Bytes of admitted request bodies without a response.",
    registers: [registry],
    collect() {
      this.set(readBytes());
    },
  });
  return {
    pendingBytesFrom(read) {
      readBytes = read;
    },
  };
}

function tritonMetrics(registry: Registry): TritonPoolObserver {
  const common = { labelNames: ["target"], registers: [registry] };
  const requests = new Counter({
    name: embedMetrics.tritonRequests,
    help: "Calls to Tritons including retries, by target.",
    ...common,
  });
  const failures = new Counter({
    name: embedMetrics.tritonFailures,
    help: "Calls to Tritons without a response or with an error, by target.",
    ...common,
  });
  const healthy = new Gauge({
    name: embedMetrics.tritonHealthy,
    help: "Healthy addresses of a target.",
    ...common,
  });
  return {
    ended(target, ok) {
      requests.inc({ target });
      failures.inc({ target }, ok ? 0 : 1);
    },
    health: (target, addresses) => healthy.set({ target }, addresses),
  };
}
