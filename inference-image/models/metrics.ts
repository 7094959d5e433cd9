import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { TritonPoolObserver } from "../../client/pool/triton-pool.ts";
import { embedMetrics } from "../../contract/embed-api.ts";
import type { Modality } from "../../contract/model-spec.ts";
import type { EmbedderObserver } from "./embedder.ts";

/** Metrics of one embed server, in a registry of its own. */
export interface EmbedMetrics {
  /** @param model - Name of the model, `none` if the request reached none. */
  request(route: string, status: number, seconds: number, model: string): void;
  /** Metrics of one tower of a model. */
  tower(model: string, modality: Modality): TowerMetrics;
  /** @param model - Name of the model in the repositories of the Triton servers. */
  triton(model: string): TritonPoolObserver;
  /** Number of accepted images and texts; negative once they have a response. */
  pending(items: number): void;
  /** Sets the function that reads the bytes of admitted bodies at each scrape. */
  pendingBytesFrom(read: () => number): void;
  readonly contentType: string;
  text(): Promise<string>;
}

export interface TowerMetrics extends EmbedderObserver {
  /** Time to decode and resize one image. */
  decoded(seconds: number): void;
  /** Images or texts with a response. */
  embedded(items: number): void;
  /** Time of a request outside downloading, decoding, queue and inference. */
  overhead(seconds: number): void;
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
    ...towerMetrics(registry),
    ...pendingMetrics(registry),
    ...tritonMetrics(registry),
    contentType: registry.contentType,
    text: () => registry.metrics(),
  };
}

/** Functions that create metrics in a registry. */
function metricsOf(registry: Registry) {
  const registers = [registry];
  return {
    counter: (name: string, help: string, labelNames: string[]) =>
      new Counter({ name, help, labelNames, registers }),
    gauge: (name: string, help: string, labelNames: string[] = []) =>
      new Gauge({ name, help, labelNames, registers }),
    histogram: (name: string, help: string, labelNames: string[], buckets = seconds) =>
      new Histogram({ name, help, labelNames, buckets, registers }),
  };
}

function requestMetrics(registry: Registry): Pick<EmbedMetrics, "request"> {
  const { counter, histogram } = metricsOf(registry);
  const requests = counter(
    embedMetrics.requests,
    "Requests by route, status and model; 499 if the client disconnected.",
    ["route", "status", "model"],
  );
  const requestSeconds = histogram(
    embedMetrics.requestSeconds,
    "Duration of requests, by route and model.",
    ["route", "model"],
  );
  return {
    request(route, status, duration, model) {
      requests.inc({ route, status, model });
      requestSeconds.observe({ route, model }, duration);
    },
  };
}

/** Metrics by model and modality. The observers of a tower are resolved once, because they are called for every image. */
function towerMetrics(registry: Registry): Pick<EmbedMetrics, "tower"> {
  const { counter, histogram } = metricsOf(registry);
  const byTower = ["model", "modality"];
  const images = counter(embedMetrics.images, "Embedded images.", ["model"]);
  const texts = counter(embedMetrics.texts, "Embedded texts.", ["model"]);
  const decodeSeconds = histogram(
    embedMetrics.decodeSeconds,
    "Time to decode and resize one image.",
    ["model"],
  );
  const queueSeconds = histogram(
    embedMetrics.queueSeconds,
    "Time that a request waited for its batch.",
    byTower,
  );
  const inferSeconds = histogram(
    embedMetrics.inferSeconds,
    "Time of one execution of the model, or of one call to Triton with the backend triton.",
    byTower,
  );
  const overheadSeconds = histogram(
    embedMetrics.overheadSeconds,
    "Time of a request outside downloading, decoding, queue and inference.",
    byTower,
  );
  const batchSize = histogram(
    embedMetrics.batchSize,
    "Images or texts per execution of the model.",
    byTower,
    [1, 2, 4, 8, 12, 16, 24, 32, 64, 128],
  );
  const towers = new Map<string, TowerMetrics>();
  return {
    tower(model, modality) {
      const key = `${model} ${modality}`;
      const existing = towers.get(key);
      if (existing !== undefined) return existing;
      const created = createTower(model, modality);
      towers.set(key, created);
      return created;
    },
  };

  function createTower(model: string, modality: Modality): TowerMetrics {
    const labels = { model, modality };
    const [queue, infer] = [queueSeconds.labels(labels), inferSeconds.labels(labels)];
    const [overhead, batches] = [overheadSeconds.labels(labels), batchSize.labels(labels)];
    const items = { image: images, text: texts }[modality].labels({ model });
    items.inc(0);
    return {
      decoded: (duration) => decodeSeconds.observe({ model }, duration),
      embedded: (count) => items.inc(count),
      onDequeue: (duration) => queue.observe(duration),
      onBatch(batch) {
        batches.observe(batch.items);
        infer.observe(batch.inferSeconds);
      },
      overhead: (duration) => overhead.observe(duration),
    };
  }
}

function pendingMetrics(registry: Registry): Pick<EmbedMetrics, "pending" | "pendingBytesFrom"> {
  const { gauge } = metricsOf(registry);
  const items = gauge(embedMetrics.pendingImages, "Accepted images and texts without a response.");
  let readBytes = () => 0;
  new Gauge({
    name: embedMetrics.pendingBytes,
    help: "Bytes of admitted request bodies, and of their responses until they are sent.",
    registers: [registry],
    collect() {
      this.set(readBytes());
    },
  });
  return {
    pending: (count) => items.inc(count),
    pendingBytesFrom(read) {
      readBytes = read;
    },
  };
}

function tritonMetrics(registry: Registry): Pick<EmbedMetrics, "triton"> {
  const { counter, gauge } = metricsOf(registry);
  const labels = ["target", "model"];
  const requests = counter(
    embedMetrics.tritonRequests,
    "Calls to Triton servers including retries, by target and model.",
    labels,
  );
  const failures = counter(
    embedMetrics.tritonFailures,
    "Calls to Triton servers without a response or with an error, by target and model.",
    labels,
  );
  const healthy = gauge(
    embedMetrics.tritonHealthy,
    "Addresses of a target in rotation, by model.",
    labels,
  );
  const ejections = counter(
    embedMetrics.tritonEjections,
    "Times that an address of a target was taken out of rotation because its calls failed, by model.",
    labels,
  );
  return {
    triton: (model) => ({
      onAttemptEnd(target, ok) {
        requests.inc({ target, model });
        failures.inc({ target, model }, ok ? 0 : 1);
      },
      onHealthChange: (target, addresses) => healthy.set({ target, model }, addresses),
      onEjection: (target) => ejections.inc({ target, model }),
    }),
  };
}
