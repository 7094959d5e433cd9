import { type ComputeTime, executionMs } from "./compute-time.ts";
import { delay, type Station, solveNetwork, stationLimit } from "./queueing-network.ts";
import { type Link, transfer } from "./transfer.ts";

/** How the GPUs of a host are used: one Triton over all of them, or one Triton for each. */
export const topologies = ["instance-group", "per-gpu"] as const;
export type Topology = (typeof topologies)[number];

/** What is asked of the service: a closed loop, in which each client sends its next request when the last was answered. */
export interface Demand {
  readonly concurrency: number;
  readonly imagesPerRequest: number;
  /** Body of a request for one image, in bytes. */
  readonly bytesPerImage: number;
  /** Body of the answer for one image, in bytes. */
  readonly answerBytesPerImage: number;
}

/** What answers, in times. Every field is a parameter with a meaning; where its value comes from: `parameters.ts`. */
export interface System {
  readonly link: Link;
  /** All requests share one connection, which carries them one after the other: a gRPC client with one channel. */
  readonly oneConnection: boolean;
  /** Client's own work, in one process: nothing else of the client runs meanwhile. */
  readonly client: {
    /** Between an answer and the next request; in no latency. */
    readonly betweenMs: number;
    /** To write the tensors of one image; part of the latency. */
    readonly writeMsPerImage: number;
  };
  /** Server that decodes images: absent where the client sends tensors. */
  readonly decode?: { readonly msPerImage: number; readonly workers: number };
  /** Time in the server beside the compute: mostly the batcher's wait. Nobody waits longer for it because of others. */
  readonly overheadMs: number;
  /** And for each image of a request: what requests do beside each other. */
  readonly overheadMsPerImage: number;
  /** Taking in the tensors of one image; one server does one after the other. */
  readonly ingestMsPerImage: number;
  readonly compute: ComputeTime;
  readonly maxBatch: number;
  /** Executions at a time on one GPU. */
  readonly instances: number;
  readonly gpus: number;
  readonly topology: Topology;
}

/** Parts of a network, by the name of the station, in words for people. */
export const stationNames = {
  client: "the client's own work",
  link: "the link's bandwidth",
  connection: "one connection for all requests",
  waiting: "round trips",
  decode: "decoding on the server",
  overhead: "the server's batcher and overhead",
  ingest: "taking in tensors",
  gpu: "the GPU",
} as const;
export type StationName = keyof typeof stationNames;

export interface Prediction {
  readonly imagesPerSecond: number;
  /** Mean, as a client sees it. */
  readonly latencyMs: number;
  /** The station with the highest use: more of it, and nothing else, gives more images per second at high concurrency. */
  readonly bottleneck: StationName;
  /** Most images per second with as many clients as you like. */
  readonly limitImagesPerSecond: number;
  /** Mean time at each station, in milliseconds of the latency, and its use, 0..1. */
  readonly parts: readonly {
    readonly station: StationName;
    readonly ms: number;
    readonly utilization: number;
  }[];
}

/** The stations that a request passes. */
export function stationsOf(demand: Demand, system: System): readonly Station[] {
  const { imagesPerRequest: images } = demand;
  const { link, client, decode } = system;
  const sent = transfer(images * demand.bytesPerImage, link);
  const answered = transfer(images * demand.answerBytesPerImage, { ...link, connections: "kept" });
  const servers = system.topology === "per-gpu" ? system.gpus : 1;
  const gpusOfServer = system.gpus / servers;
  const waitMs = sent.setUpMs + link.roundTripMs + answered.wireMs;
  const named = (name: StationName, station: Omit<Station, "name">): Station => ({
    name,
    ...station,
  });
  return [
    named("client", { demandMs: client.betweenMs + client.writeMsPerImage * images }),
    ...(system.oneConnection
      ? [named("connection", { demandMs: sent.rampMs + sent.wireMs })]
      : [named("link", { demandMs: sent.wireMs })]),
    named("waiting", {
      demandMs: waitMs + (system.oneConnection ? 0 : sent.rampMs),
      speedUp: delay,
    }),
    ...(decode === undefined
      ? []
      : [
          named("decode", {
            // the images of one request are spread over the workers
            demandMs: (decode.msPerImage * images) / Math.min(images, decode.workers),
            speedUp: (requests) =>
              Math.min(requests * images, decode.workers) / Math.min(images, decode.workers),
          }),
        ]),
    named("overhead", {
      demandMs: system.overheadMs + system.overheadMsPerImage * images,
      speedUp: delay,
    }),
    named("ingest", { demandMs: system.ingestMsPerImage * images, copies: servers }),
    named("gpu", {
      demandMs: executionMs(system.compute, images),
      speedUp: batchedSpeedUp(images, system, gpusOfServer),
      copies: servers,
    }),
  ];
}

/**
 * How much more a server with GPUs does when more requests are there: first its other GPUs work too, then batches grow, up
 * to the largest batch of all instances.
 */
function batchedSpeedUp(images: number, system: System, gpus: number) {
  const perBatch = Math.max(1, Math.floor(system.maxBatch / images)) * system.instances;
  const alone = executionMs(system.compute, images);
  return (requests: number): number => {
    const busy = Math.min(requests, gpus);
    const together = Math.min(Math.max(1, requests / gpus), perBatch);
    return (busy * together * alone) / executionMs(system.compute, together * images);
  };
}

/** What a load on a system gives. */
export function predict(demand: Demand, system: System): Prediction {
  const stations = stationsOf(demand, system);
  const { concurrency, imagesPerRequest: images } = demand;
  const solution = solveNetwork(stations, concurrency);
  const { betweenMs, writeMsPerImage } = system.client;
  const ownMs = betweenMs + writeMsPerImage * images;
  // of the time at the client, the part before the request is no latency
  const inLatency = (name: string, ms: number) =>
    name === "client" ? (ms * (ownMs - betweenMs)) / ownMs : ms;
  const parts = solution.stations.map(({ name, residenceMs, utilization }) => ({
    station: name as StationName,
    ms: inLatency(name, residenceMs),
    utilization,
  }));
  const queues = parts.filter(({ utilization }) => utilization > 0);
  const bottleneck = queues.reduce((a, b) => (b.utilization > a.utilization ? b : a));
  const many = Math.max(concurrency, 4096);
  return {
    imagesPerSecond: solution.requestsPerSecond * images,
    latencyMs: parts.reduce((sum, { ms }) => sum + ms, 0),
    bottleneck: bottleneck.station,
    limitImagesPerSecond:
      images * Math.min(...stations.map((station) => stationLimit(station, many))),
    parts,
  };
}
