import { maxGpus } from "../../contract/gpus.ts";
import {
  type Demand,
  firstToSaturate,
  type Prediction,
  predict,
  type StationName,
  type System,
  stationsOf,
  type Topology,
} from "./model.ts";
import { type Station, stationLimit, throughputs } from "./queueing-network.ts";
import { type Backend, executionMs, ingestMs, type ServiceTimes } from "./service-times.ts";

/** Payload formats with the API that accepts them. */
export const payloads = {
  jpeg: "a JPEG to the embed API, which decodes it",
  uint8: "8-bit pixels to Triton",
  fp32: "float32 tensors to Triton",
  json: "float32 tensors as JSON text to Triton",
} as const;
export type Payload = keyof typeof payloads;
export const payloadNames = Object.keys(payloads) as [Payload, ...Payload[]];

/** Payload formats that the stacks serve, with the backend of each if an environment states it. */
export type ServedPayloads = Partial<Readonly<Record<Payload, Backend>>>;

/** Formats that a recommendation may name: no stack serves 8-bit pixels, and JSON is never the best format. */
export const recommendedPayloads = ["jpeg", "fp32"] as const satisfies readonly Payload[];

/** GPU with its price. */
export interface Device {
  /** Key of the GPU catalogue, or the name of a declared GPU. */
  readonly name: string;
  readonly usdPerHour: number;
  /** Month of the catalogue price; absent if the user set the price. */
  readonly priceDate?: string;
}

export interface Scenario {
  readonly device: Device;
  readonly gpus: number;
  readonly topology: Topology;
  readonly backend: Backend;
  readonly payload: Payload;
  readonly bandwidthMbps: number;
  readonly roundTripMs: number;
  readonly connections: "new" | "kept";
  readonly concurrency: number;
  /**
   * Cores of the host.
   *
   * @default typicalCoresPerGpu for each GPU
   */
  readonly cores?: number;
  readonly imagesPerRequest: number;
  /** Client time between two requests. */
  readonly clientMs: number;
  readonly jpegBytes: number;
  /** Formats of the environment; absent without one. */
  readonly served?: ServedPayloads;
}

export interface ScenarioPrediction extends Prediction {
  /** Throughput of the GPUs without any other bottleneck. */
  readonly gpusAloneImagesPerSecond: number;
  /** Limit of the measured number of cores, if decoding or ingest on more cores is the bottleneck. */
  readonly measuredLimit?: number;
  readonly usdPerThousand: number;
}

export const largestBatch = 32;

/** Cores of a host per GPU, if unknown. */
export const typicalCoresPerGpu = 8;

/** US dollars per 1,000 images. */
export function costPerThousand(usdPerHour: number, imagesPerSecond: number): number {
  return (usdPerHour / 3600 / imagesPerSecond) * 1000;
}

/** Predicts throughput, latency and cost of a scenario. */
export function predictScenario(scenario: Scenario, times: ServiceTimes): ScenarioPrediction {
  const system = systemOf(scenario, times);
  const predicted = predict(demandOf(scenario, times), system);
  const share = measuredShare(hostShareOf(scenario, times), predicted.bottleneck);
  const usdPerHour = scenario.device.usdPerHour * scenario.gpus;
  return {
    ...predicted,
    ...(share < 0.999 ? { measuredLimit: predicted.limitImagesPerSecond * share } : {}),
    gpusAloneImagesPerSecond:
      (1000 * scenario.gpus * system.maxBatch) / executionMs(system.compute, system.maxBatch),
    usdPerThousand: costPerThousand(usdPerHour, predicted.imagesPerSecond),
  };
}

/** Images per second with 1, 2, … `clients` clients. */
export function ratesByClients(
  scenario: Omit<Scenario, "concurrency">,
  times: ServiceTimes,
  clients: number,
): readonly number[] {
  const loaded = { ...scenario, concurrency: clients };
  const stations = stationsOf(demandOf(loaded, times), systemOf(loaded, times));
  return throughputs(stations, clients).map((rate) => rate * scenario.imagesPerRequest);
}

/** Returns the station that bounds the throughput of many clients. */
export function bottleneckOf(scenario: Scenario, times: ServiceTimes): StationName {
  const stations = stationsOf(demandOf(scenario, times), systemOf(scenario, times));
  const use = (station: Station) => 1 / stationLimit(station, scenario.concurrency);
  return firstToSaturate(stations, use).name as StationName;
}

/** Request body size per image. */
export function bytesPerImage(
  { payload, jpegBytes }: Pick<Scenario, "payload" | "jpegBytes">,
  times: Pick<ServiceTimes, "bytes" | "jsonBytesPerImage">,
): number {
  switch (payload) {
    case "jpeg":
      return jpegBytes;
    case "uint8":
      return times.bytes.uint8;
    case "fp32":
      return times.bytes.fp32;
    case "json":
      return times.jsonBytesPerImage;
  }
}

function demandOf(scenario: Scenario, times: ServiceTimes): Demand {
  const text = scenario.payload === "jpeg" || scenario.payload === "json";
  return {
    concurrency: scenario.concurrency,
    imagesPerRequest: scenario.imagesPerRequest,
    bytesPerImage: bytesPerImage(scenario, times),
    responseBytesPerImage: times.bytes.embedding[text ? "json" : "binary"],
  };
}

function systemOf(scenario: Scenario, times: ServiceTimes): System {
  const { decode, ingestMsPerImage } = hostShareOf(scenario, times);
  return {
    link: scenario,
    oneConnection: false,
    client: {
      betweenMs: scenario.clientMs,
      writeMsPerImage: scenario.payload === "json" ? times.jsonMsPerImage : 0,
    },
    ...(decode === undefined ? {} : { decode }),
    overheadMs: times.overheadMs,
    ingestMsPerImage,
    compute: times.compute(scenario.device.name, scenario.backend),
    maxBatch: Math.min(largestBatch, times.maxBatch),
    instances: 1,
    gpus: scenario.gpus,
    topology: scenario.topology,
  };
}

/** Cores of a scenario's host. */
export function coresOf({ cores, gpus }: Pick<Scenario, "cores" | "gpus">): number {
  return cores ?? typicalCoresPerGpu * gpus;
}

/** Share of the host in a prediction. */
export interface HostShare {
  /** Embed server: processor time per image and concurrent images. */
  readonly decode?: { readonly msPerImage: number; readonly workers: number };
  readonly ingestMsPerImage: number;
  /** Ingest time per image if one Triton server uses no more cores than were measured; absent if it does not depend on the cores. */
  readonly measuredIngestMs?: number;
  /** Concurrent images of decoding on no more cores than were measured; absent if it does not depend on the cores. */
  readonly measuredWorkers?: number;
}

/** Returns the limit of the bottleneck on as many cores as were measured, as a share of its limit on the cores of the host. */
function measuredShare(
  { decode, measuredWorkers, ingestMsPerImage, measuredIngestMs }: HostShare,
  bottleneck: StationName,
): number {
  if (bottleneck === "ingest") return ingestMsPerImage / (measuredIngestMs ?? ingestMsPerImage);
  if (bottleneck !== "decode" || decode === undefined) return 1;
  return (measuredWorkers ?? decode.workers) / decode.workers;
}

/**
 * Returns decoding and ingest capacity of the host. Cores are divided between decoding and the
 * Triton servers in proportion to their CPU time per image. A given ingest time (`--ingest-ms`)
 * does not depend on the cores.
 */
export function hostShareOf(scenario: Scenario, times: ServiceTimes): HostShare {
  const { payload, topology, gpus } = scenario;
  const cores = coresOf(scenario);
  const decodeMs = payload === "jpeg" ? times.decodeMsPerImage + times.gatewayMsPerImage : 0;
  // a gateway forwards float32 tensors to its Triton servers
  const perCore = times.ingestPerCore;
  const kind = payload === "jpeg" ? "grpcFp32" : payload === "uint8" ? "httpUint8" : "httpFp32";
  const givenIngestMs = payload === "jpeg" && times.embedComputes ? 0 : times.ingestMsPerImage;
  const decodeShare = givenIngestMs !== undefined ? 1 : decodeMs / (decodeMs + perCore.ms[kind]);
  const decode =
    payload === "jpeg"
      ? { msPerImage: decodeMs, workers: times.decodeWorkers ?? Math.max(1, cores * decodeShare) }
      : undefined;
  if (givenIngestMs !== undefined) {
    const tensorBytes = payload === "uint8" ? times.bytes.uint8 : times.bytes.fp32;
    return { decode, ingestMsPerImage: (givenIngestMs * tensorBytes) / times.bytes.fp32 };
  }
  const measuredCores = Math.min(cores, perCore.measuredCores);
  const coresPerTriton = (cores * (1 - decodeShare)) / (topology === "per-gpu" ? gpus : 1);
  return {
    decode,
    ingestMsPerImage: ingestMs(kind, perCore, coresPerTriton),
    measuredIngestMs: ingestMs(kind, perCore, Math.min(coresPerTriton, perCore.measuredCores)),
    ...(decode === undefined || times.decodeWorkers !== undefined
      ? {}
      : { measuredWorkers: (decode.workers * measuredCores) / cores }),
  };
}

const rateOf = (scenario: Scenario, times: ServiceTimes): number =>
  ratesByClients(scenario, times, scenario.concurrency).at(-1) ?? 0;

const formats = { jpeg: "JPEG", fp32: "float32 tensors" } as const;

/** Change to a scenario and the resulting prediction. */
export interface Alternative {
  readonly change: string;
  readonly prediction: ScenarioPrediction;
}

/** Changes that increase throughput by 5 % or more, in descending order of throughput. */
export function alternatives(scenario: Scenario, times: ServiceTimes): readonly Alternative[] {
  const now = rateOf(scenario, times);
  const { gpus, payload, backend, served, concurrency } = scenario;
  const variants: readonly (readonly [string, Partial<Scenario>, Partial<ServiceTimes>?])[] = [
    ["keep connections open", { connections: "kept" }],
    ...recommendedPayloads.map(
      (other) =>
        [
          `send ${formats[other]}`,
          { payload: other, backend: served?.[other] ?? backend },
        ] as const,
    ),
    [
      `twice the bandwidth (${2 * scenario.bandwidthMbps} Mbit/s)`,
      { bandwidthMbps: 2 * scenario.bandwidthMbps },
    ],
    ["half the round trip", { roundTripMs: scenario.roundTripMs / 2 }],
    [`twice the clients (${2 * concurrency})`, { concurrency: 2 * concurrency }],
    [`${2 * gpus} GPUs`, { gpus: 2 * gpus }],
    ["one Triton server per GPU (per-gpu)", { topology: "per-gpu" }],
    times.decodeWorkers === undefined
      ? [`twice the cores (${2 * coresOf(scenario)})`, { cores: 2 * coresOf(scenario) }]
      : [
          `twice the decoding workers (${2 * times.decodeWorkers})`,
          {},
          { decodeWorkers: 2 * times.decodeWorkers },
        ],
  ];
  return (
    variants
      .filter(([, { payload: other }]) => other !== payload)
      .filter(([, { payload: other }]) => !(served && other) || other in served)
      .filter(([, { gpus: more = 1 }]) => more <= maxGpus || scenario.topology === "per-gpu")
      .map(([change, other, faster]) => ({
        change,
        scenario: { ...scenario, ...other },
        times: { ...times, ...faster },
      }))
      // computing only the rate is cheap
      .filter(({ scenario, times }) => rateOf(scenario, times) >= 1.05 * now)
      .map(({ change, scenario, times }) => ({
        change,
        prediction: predictScenario(scenario, times),
      }))
      .sort((a, b) => b.prediction.imagesPerSecond - a.prediction.imagesPerSecond)
  );
}
