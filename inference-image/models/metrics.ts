import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { TritonPoolObserver } from "../../client/pool/triton-pool.ts";
import {
  batchBuckets,
  type EmbedMetricKey,
  embedMetricTable,
  secondsBuckets,
} from "../../contract/metrics/embed-metrics.ts";
import type { Modality } from "../../contract/model-spec.ts";
import type { EmbedderObserver } from "./embedder.ts";

/** Metrics of one embed server, in a registry of its own. */
export interface EmbedMetrics {
  request(labels: RequestLabels, seconds: number): void;
  /** Whether the present content of files is valid, and in use. */
  fileState(file: string, isValid: boolean): void;
  /** End of the certificate's validity. */
  certificateExpires(at: Date): void;
  tower(model: string, modality: Modality): TowerMetrics;
  /** @param model - Name of the model in the repositories of the Triton servers. */
  triton(model: string): TritonPoolObserver;
  /** Number of accepted images and texts; negative once they have a response. */
  pending(items: number): void;
  /** Sets the function that reads the bytes of admitted bodies at each scrape. */
  pendingBytesFrom(read: () => number): void;
  /** Sets the function that reads whether the server is ready at each scrape. */
  readyFrom(read: () => Promise<boolean>): void;
  readonly contentType: string;
  text(): Promise<string>;
}

export interface RequestLabels {
  readonly route: string;
  readonly status: number;
  /** Name of the model, `none` if the request reached none. */
  readonly model: string;
  /** Name of the client's key, `none` without a valid key. */
  readonly client: string;
}

export interface TowerMetrics extends EmbedderObserver {
  /** Time to decode and resize one image. */
  decoded(seconds: number): void;
  /** Images or texts with a response. */
  embedded(items: number): void;
  /** Time of a request outside downloading, decoding, queue and inference. */
  overhead(seconds: number): void;
}

export function createMetrics(): EmbedMetrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return {
    ...requestMetrics(registry),
    ...towerMetrics(registry),
    ...pendingMetrics(registry),
    ...fileMetrics(registry),
    ...tritonMetrics(registry),
    contentType: registry.contentType,
    text: () => registry.metrics(),
  };
}

/** Functions that create metrics of the contract's table in a registry. */
function metricsOf(registry: Registry) {
  const definition = (key: EmbedMetricKey) => {
    const { name, help, labels } = embedMetricTable[key];
    return { name, help, labelNames: [...labels], registers: [registry] };
  };
  return {
    counter: (key: EmbedMetricKey) => new Counter<string>(definition(key)),
    gauge: (key: EmbedMetricKey, collect?: (this: Gauge<string>) => void | Promise<void>) =>
      new Gauge<string>({ ...definition(key), ...(collect && { collect }) }),
    histogram: (key: EmbedMetricKey, buckets: readonly number[] = secondsBuckets) =>
      new Histogram<string>({ ...definition(key), buckets: [...buckets] }),
  };
}

function requestMetrics(registry: Registry): Pick<EmbedMetrics, "request"> {
  const { counter, histogram } = metricsOf(registry);
  const requests = counter("requests");
  const requestSeconds = histogram("requestSeconds");
  return {
    request(labels, duration) {
      requests.inc({ ...labels });
      requestSeconds.observe({ route: labels.route, model: labels.model }, duration);
    },
  };
}

/** Metrics by model and modality. The observers of a tower are resolved once, because they are called for every image. */
function towerMetrics(registry: Registry): Pick<EmbedMetrics, "tower"> {
  const { counter, histogram } = metricsOf(registry);
  const images = counter("images");
  const texts = counter("texts");
  const decodeSeconds = histogram("decodeSeconds");
  const queueSeconds = histogram("queueSeconds");
  const inferSeconds = histogram("inferSeconds");
  const overheadSeconds = histogram("overheadSeconds");
  const batchSize = histogram("batchSize", batchBuckets);
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

function pendingMetrics(
  registry: Registry,
): Pick<EmbedMetrics, "pending" | "pendingBytesFrom" | "readyFrom"> {
  const { gauge } = metricsOf(registry);
  const items = gauge("pendingImages");
  let readBytes = () => 0;
  let readReady = async () => false;
  gauge("ready", async function () {
    this.set((await readReady()) ? 1 : 0);
  });
  gauge("pendingBytes", function () {
    this.set(readBytes());
  });
  return {
    pending: (count) => items.inc(count),
    pendingBytesFrom(read) {
      readBytes = read;
    },
    readyFrom(read) {
      readReady = read;
    },
  };
}

function fileMetrics(registry: Registry): Pick<EmbedMetrics, "fileState" | "certificateExpires"> {
  const { gauge } = metricsOf(registry);
  const valid = gauge("fileValid");
  const expiry = gauge("certificateExpiry");
  // no value without TLS, instead of 0
  expiry.remove();
  return {
    fileState: (file, isValid) => valid.set({ file }, isValid ? 1 : 0),
    certificateExpires: (at) => expiry.set(at.getTime() / 1000),
  };
}

function tritonMetrics(registry: Registry): Pick<EmbedMetrics, "triton"> {
  const { counter, gauge } = metricsOf(registry);
  const requests = counter("tritonRequests");
  const failures = counter("tritonFailures");
  const healthy = gauge("tritonHealthy");
  const ejections = counter("tritonEjections");
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
