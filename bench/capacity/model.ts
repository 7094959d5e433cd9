import { delay, type Station, solveNetwork, stationLimit } from "./queueing-network.ts";
import { type ComputeTime, executionMs } from "./service-times.ts";
import { type Link, transfer } from "./transfer.ts";

/** Assignment of a host's GPUs: one Triton server for all of them or one per GPU. */
export const topologies = ["instance-group", "per-gpu"] as const;
export type Topology = (typeof topologies)[number];

/** Closed-loop load on the service. */
export interface Demand {
  readonly concurrency: number;
  readonly imagesPerRequest: number;
  /** Body of a request for one image, in bytes. */
  readonly bytesPerImage: number;
  readonly responseBytesPerImage: number;
}

/** Parameters of the modelled system. */
export interface System {
  readonly link: Link;
  /** Whether all requests share one connection sequentially, as with a single gRPC channel. */
  readonly oneConnection: boolean;
  /** Work of the client process, which is single-threaded. */
  readonly client: {
    /** Time between a response and the next request; not part of the latency. */
    readonly betweenMs: number;
    /** Time to encode the tensor of one image; part of the latency. */
    readonly writeMsPerImage: number;
  };
  /** Image decoding on the server; absent if the client sends tensors. */
  readonly decode?: { readonly msPerImage: number; readonly workers: number };
  /** Server time per request besides decoding, ingest and compute, mostly in the batcher. It does not depend on the load. */
  readonly overheadMs: number;
  /**
   * Time in ms that a Triton server needs to receive the tensor of one image. A Triton server
   * receives one tensor at a time.
   */
  readonly ingestMsPerImage: number;
  readonly compute: ComputeTime;
  readonly maxBatch: number;
  /** Concurrent executions per GPU. */
  readonly instances: number;
  readonly gpus: number;
  readonly topology: Topology;
}

export const stationNames = {
  client: "client work",
  link: "link bandwidth",
  connection: "one connection for all requests",
  waiting: "round trips",
  decode: "decoding on the server",
  overhead: "batcher and server overhead",
  ingest: "tensor ingest",
  gpu: "GPU",
} as const;
export type StationName = keyof typeof stationNames;

export interface Prediction {
  readonly imagesPerSecond: number;
  /** Mean latency measured by the client. */
  readonly latencyMs: number;
  /** Station with the highest utilisation, which bounds the throughput at high concurrency. */
  readonly bottleneck: StationName;
  /** Maximum images per second with any number of clients. */
  readonly limitImagesPerSecond: number;
  /** Mean time that a request spends at each station, and the utilisation of the station, 0..1. */
  readonly parts: readonly {
    readonly station: StationName;
    readonly ms: number;
    readonly utilization: number;
  }[];
}

/** Stations that a request passes. */
export function stationsOf(demand: Demand, system: System): readonly Station[] {
  const { imagesPerRequest: images } = demand;
  const { link, client, decode } = system;
  const request = transfer(images * demand.bytesPerImage, link);
  const response = transfer(images * demand.responseBytesPerImage, {
    ...link,
    connections: "kept",
  });
  const servers = system.topology === "per-gpu" ? system.gpus : 1;
  const gpusOfServer = system.gpus / servers;
  const waitMs = request.setUpMs + link.roundTripMs + response.wireMs;
  const named = (name: StationName, station: Omit<Station, "name">): Station => ({
    name,
    ...station,
  });
  return [
    named("client", { demandMs: client.betweenMs + client.writeMsPerImage * images }),
    ...(system.oneConnection
      ? [named("connection", { demandMs: request.rampMs + request.wireMs })]
      : [named("link", { demandMs: request.wireMs })]),
    named("waiting", {
      demandMs: waitMs + (system.oneConnection ? 0 : request.rampMs),
      speedUp: delay,
    }),
    ...(decode === undefined
      ? []
      : [
          named("decode", {
            // the images of a request are distributed over the workers
            demandMs: (decode.msPerImage * images) / Math.min(images, decode.workers),
            speedUp: (requests) =>
              Math.min(requests * images, decode.workers) / Math.min(images, decode.workers),
          }),
        ]),
    named("overhead", { demandMs: system.overheadMs, speedUp: delay }),
    named("ingest", { demandMs: system.ingestMsPerImage * images, copies: servers }),
    named("gpu", {
      demandMs: executionMs(system.compute, images),
      speedUp: batchedSpeedUp(images, system, gpusOfServer),
      copies: servers,
    }),
  ];
}

/**
 * Relative throughput of a server with `gpus` GPUs by queued requests: first more GPUs are used, then batches grow up to the
 * maximum batch size.
 */
function batchedSpeedUp(images: number, system: System, gpus: number) {
  const perBatch = Math.max(1, Math.floor(system.maxBatch / images)) * system.instances;
  const singleMs = executionMs(system.compute, images);
  return (requests: number): number => {
    const busyGpus = Math.min(requests, gpus);
    const batched = Math.min(Math.max(1, requests / gpus), perBatch);
    return (busyGpus * batched * singleMs) / executionMs(system.compute, batched * images);
  };
}

/** Relative difference below which two stations saturate together, as decoding and ingest that share cores do. */
const rounding = 1e-6;

/**
 * The station that saturates first; the earliest of those that saturate together.
 *
 * @param use - Utilisation of a station, in any unit.
 */
export function firstToSaturate<T>(stations: readonly T[], use: (station: T) => number): T {
  return stations.reduce((a, b) => (use(b) > use(a) * (1 + rounding) ? b : a));
}

/** Predicts throughput and latency of a load on a system. */
export function predict(demand: Demand, system: System): Prediction {
  const stations = stationsOf(demand, system);
  const { concurrency, imagesPerRequest: images } = demand;
  const solution = solveNetwork(stations, concurrency);
  const { betweenMs, writeMsPerImage } = system.client;
  const clientMs = betweenMs + writeMsPerImage * images;
  // the client's time between requests is not part of the latency
  const inLatency = (name: string, ms: number) =>
    name === "client" ? (ms * (clientMs - betweenMs)) / clientMs : ms;
  const parts = solution.stations.map(({ name, residenceMs, utilization }) => ({
    station: name as StationName,
    ms: inLatency(name, residenceMs),
    utilization,
  }));
  const queues = parts.filter(({ utilization }) => utilization > 0);
  const bottleneck = firstToSaturate(queues, ({ utilization }) => utilization);
  const saturating = Math.max(concurrency, 4096);
  return {
    imagesPerSecond: solution.requestsPerSecond * images,
    latencyMs: parts.reduce((sum, { ms }) => sum + ms, 0),
    bottleneck: bottleneck.station,
    limitImagesPerSecond:
      images * Math.min(...stations.map((station) => stationLimit(station, saturating))),
    parts,
  };
}
