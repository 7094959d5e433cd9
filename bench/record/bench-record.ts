import { readFileSync } from "node:fs";
import { z } from "zod";
import { endpointNames } from "../../contract/environment.ts";
import { readFailure } from "../../contract/read-failure.ts";
import { UserError } from "../../contract/user-error.ts";
import { payloadFormats, serializations } from "./bench-endpoint.ts";
import { type GpuReadingName, gpuReadingNames } from "./gpu-readings.ts";
import { parseRecordAs, type RecordKind } from "./parse-record.ts";
import { environmentSubject, machineSubject, measurement, modelSubject } from "./record.ts";
import { sloSearch } from "./slo-search.ts";
import { studyIds, studyResult } from "./study-result.ts";

/**
 * Saved run of `clipstack bench` or `clipstack sweep`. Every report, comparison and calibration is computed from this record
 * alone. `bench/record/bench-record.schema.json` is rendered from it (`npm run render`).
 */

/** Incremented when a field changes its name or meaning. */
export const benchRecordVersion = 3;

/** See `Channels` in `bench/load/channels.ts`. */
const channels = z.union([z.enum(["shared", "new"]), z.int().min(1)]).optional();

const loadShape = z.discriminatedUnion("kind", [
  z.strictObject({
    kind: z.literal("closed loop"),
    /** Clients; each sends its next request when it receives the response to the previous one. */
    concurrency: z.int().min(1),
    channels,
  }),
  z.strictObject({
    kind: z.literal("open loop"),
    arrivals: z.enum(["constant", "poisson"]),
    /** Requests per second, sent regardless of outstanding responses. */
    ratePerSecond: z.number().gt(0),
    /** Seed of the arrival times. */
    seed: z.int(),
    channels,
  }),
]);
export type LoadShape = z.infer<typeof loadShape>;

/** Conditions of a load point that a study changed. */
export const conditions = z.strictObject({
  /** Queue delay of the model's dynamic batcher, in microseconds. */
  queueDelayUs: z.int().min(0).optional(),
  /** Bandwidth of an emulated link between client and server in each direction, in megabits (10^6) per second. */
  bandwidthMbps: z.number().gt(0).optional(),
  /** Round-trip time added by the emulated link, in milliseconds. */
  roundTripMs: z.number().min(0).optional(),
  gpus: z.int().min(1).optional(),
  topology: z.enum(["instance-group", "per-gpu"]).optional(),
});
export type Conditions = z.infer<typeof conditions>;

export const latency = z.strictObject({
  mean: z.number(),
  p50: z.number(),
  p90: z.number(),
  p95: z.number(),
  p99: z.number(),
  max: z.number(),
  /** Whether there are enough samples; below the minimum, p99 is determined by one or two requests. */
  p99Reliable: z.boolean(),
});

export const window = z.strictObject({
  seconds: z.number().gt(0),
  /** Successful responses in the window. */
  requests: z.int().min(0),
  imagesPerSecond: z.number().min(0),
  p99Ms: z.number().optional(),
  failed: z.int().min(0),
});

/** Mean times of the requests in the measured windows, from the server's counters, in milliseconds per request. */
export const serverTimes = z.strictObject({
  /** `triton`: `nv_inference_*`; `embed`: the embed server's histograms. */
  source: z.enum(["triton", "embed"]),
  requests: z.number().min(0),
  executions: z.number().min(0).optional(),
  /** Images per execution of the model. */
  averageBatch: z.number().min(0).optional(),
  /** Total time in the server. */
  requestMs: z.number().optional(),
  /** Decoding and preprocessing of images, for the payload format `jpeg`. */
  decodeMs: z.number().optional(),
  queueMs: z.number().optional(),
  inputMs: z.number().optional(),
  inferMs: z.number().optional(),
  outputMs: z.number().optional(),
});

const gpuUse = z.strictObject({
  /** Main source; with `triton metrics`, readings that Triton does not report are from `nvidia-smi`. */
  source: z.enum(["triton metrics", "nvidia-smi"]),
  gpus: z.array(
    z.strictObject({
      /** UUID, or the index if the source reports only that. */
      id: z.string(),
      ...(Object.fromEntries(
        gpuReadingNames.map((name) => [name, z.number().optional()]),
      ) as Record<GpuReadingName, z.ZodOptional<z.ZodNumber>>),
    }),
  ),
});

/** Resource use of the load generator, which must not limit the measurement. */
export const clientUse = z.strictObject({
  /** Processes that send requests. */
  workers: z.int().min(1),
  /** CPU utilisation of the busiest worker, 1 = one core. */
  busiestWorkerCores: z.number(),
  /** Highest p99 of any worker's event-loop delay, milliseconds. */
  eventLoopDelayP99Ms: z.number(),
  /**
   * Fraction of the requests sent later than 1 ms, 10 % of the mean interval or 10 % of the p50, whichever is longest, after they were
   * due, 0..1.
   */
  delayedSends: z.number(),
});

/** Measurements of a load point between two starts of the load; the unit of every interval. */
export const round = z.strictObject({
  /** Number of the round, from 1; the load points of a round were measured in random order. */
  round: z.int().min(1),
  /** Position in the order of the round, from 1. */
  position: z.int().min(1).optional(),
  startedAt: z.iso.datetime().optional(),
  warmup: z.strictObject({ seconds: z.number(), requests: z.int() }),
  /** Measured windows in order; all of them count. */
  windows: z.array(window),
  /** `short`: a window is missing or was cut off. */
  outcome: z.enum(["complete", "short", "interrupted"]),
  seconds: z.number().min(0),
  samples: z.int().min(0),
  requestsPerSecond: z.number().min(0),
  imagesPerSecond: z.number().min(0),
  achievedShare: z.number().optional(),
  latencyMs: latency.optional(),
  errors: measurement.shape.errors,
  client: clientUse.optional(),
  /** Reasons why the round is invalid; whole sentences. */
  invalid: z.array(z.string()),
});
export type Round = z.infer<typeof round>;

/** Load point: one combination of endpoint, batch size and concurrency or rate, and its measurements in all rounds. */
export const loadPoint = z.strictObject({
  /** Unique in the record and readable: `onnx-http b8 c4`. */
  id: z.string(),
  study: z.enum(studyIds).optional(),
  environment: z.string(),
  service: z.string(),
  endpoint: z.enum(endpointNames),
  payload: z.enum(payloadFormats),
  serialization: z.enum(serializations),
  /** Images, or texts with the payload format `text`; also in the other fields and metrics with images in their name. */
  imagesPerRequest: z.int().min(1),
  /** Mean size of request and response bodies, in bytes. */
  requestBytes: z.number().min(0),
  responseBytes: z.number().min(0),
  load: loadShape,
  conditions,
  rounds: z.array(round).min(1),
  stability: z.strictObject({
    /**
     * `drifting`: the throughput has a trend within the rounds or from round to round; `short`: too few windows or rounds to
     * detect one. In records before schema 3, `drifting` also means that the windows never agreed.
     */
    verdict: z.enum(["stable", "drifting", "short", "interrupted"]),
    /** Relative change of the throughput from the first to the last window of a round, by regression; 0.1 = 10 % faster. */
    changeInRound: z.number().optional(),
    /** The same from the first to the last round. */
    changeOverRounds: z.number().optional(),
    /** Probability of the steeper of the two trends without drift, 0..1. */
    p: z.number().optional(),
  }),
  /** Total length of the measured windows. */
  seconds: z.number().min(0),
  /** Requests due in the measured windows that succeeded, possibly later; only these count for the percentiles. */
  samples: z.int().min(0),
  /** Mean of the rounds, as all rates. */
  requestsPerSecond: z.number().min(0),
  imagesPerSecond: z.number().min(0),
  /** Open loop: fraction of the requests due in the measured windows that succeeded, 0..1. */
  achievedShare: z.number().optional(),
  /** Percentiles of the requests of all rounds together. */
  latencyMs: latency.optional(),
  /** [latency in microseconds, requests], ascending: the raw histogram. */
  histogram: measurement.shape.histogram,
  /** Failed requests by code: in the measured windows, and including the warm-up. */
  errors: measurement.shape.errors,
  errorsWithWarmup: measurement.shape.errors,
  client: clientUse,
  server: serverTimes.optional(),
  gpu: gpuUse.optional(),
  /** Reasons why the load point is invalid; whole sentences. */
  invalid: z.array(z.string()),
});
export type LoadPoint = z.infer<typeof loadPoint>;

/** Versions of a server's libraries, from its image or its package. */
export const software = z.strictObject({
  /** Release of NVIDIA's image, such as `26.07`. */
  tritonRelease: z.string().optional(),
  cuda: z.string().optional(),
  tensorrt: z.string().optional(),
  onnxRuntime: z.string().optional(),
});
export type Software = z.infer<typeof software>;

export const price = z.strictObject({
  usdPerHour: z.number().min(0),
  /** Date of the price, in the format of its source. */
  date: z.string(),
  /** Source of the price: the GPU catalogue, or `--price`. */
  source: z.string(),
});
export type Price = z.infer<typeof price>;

export const benchRecord = z.strictObject({
  schema: z.literal(benchRecordVersion),
  kind: z.literal("bench"),
  /** UTC, ISO 8601. */
  startedAt: z.iso.datetime(),
  finishedAt: z.iso.datetime(),
  /** Whether Ctrl-C ended the run; the record contains the measurements up to then. */
  interrupted: z.boolean(),
  /** System under test; without it the numbers mean nothing. */
  subject: z.strictObject({
    commit: z.string().optional(),
    dirty: z.boolean().optional(),
    /** `simulation`: local processes; `addresses`: given on the command line, environment unknown. */
    target: z.enum(["simulation", "deployed", "addresses"]),
    /** Command line without secrets. */
    commandLine: z.array(z.string()).optional(),
    /** Name and version reported by the server of each service. */
    servers: z.array(
      z.strictObject({
        service: z.string(),
        name: z.string(),
        version: z.string(),
        /** Versions of its libraries, if known. */
        software: software.optional(),
      }),
    ),
    /** Version of the NVIDIA driver on the measured host. */
    driver: z.string().optional(),
    model: modelSubject,
    /** Machine of the load generator, and of the servers in a local simulation. */
    machine: machineSubject,
    gpu: z
      .strictObject({ name: z.string(), count: z.int().min(1), vramMiB: z.int().optional() })
      .optional(),
    price: price.optional(),
    environments: z.array(environmentSubject),
  }),
  settings: z.strictObject({
    /** Names of endpoints by `benchEndpointName`. */
    endpoints: z.array(z.string()),
    windowSeconds: z.number(),
    /** Measured windows per round. */
    windows: z.int().min(1),
    rounds: z.int().min(1),
    /** Length of the warm-up of each round; absent in records before schema 3, whose warm-up ended when the throughput was steady. */
    warmupSeconds: z.number().optional(),
    /** Requests measured per load point instead of windows; only in records before 2026-11-24. */
    iterations: z.int().optional(),
    /** Maximum duration of a load point per round in seconds, including the warm-up. */
    durationSeconds: z.number(),
    seed: z.int(),
    p99MinimumSamples: z.int(),
    /** Images or texts that the load sends. */
    images: z.strictObject({ source: z.string(), count: z.int(), meanBytes: z.number() }),
  }),
  /** Difference between the embeddings of each endpoint and the local reference, measured before anything is timed. */
  parity: z.array(
    z.strictObject({
      environment: z.string(),
      service: z.string(),
      endpoint: z.enum(endpointNames),
      payload: z.enum(payloadFormats),
      serialization: z.enum(serializations),
      images: z.int(),
      minCosine: z.number(),
      maxRelativeDifference: z.number(),
      passed: z.boolean(),
      /** Difference found, or the reason why nothing was compared. */
      message: z.string(),
    }),
  ),
  loadPoints: z.array(loadPoint),
  studies: z.array(studyResult),
  /** Searches for the highest rate within an SLO (`--slo`). */
  slo: z.array(sloSearch).optional(),
  /** Measurements imported from the output of another program; reported next to the load points, never mixed with them. */
  imported: z.array(
    z.strictObject({
      program: z.enum(["perf_analyzer"]),
      file: z.string(),
      rows: z.array(
        z.strictObject({
          label: z.string(),
          concurrency: z.int().optional(),
          ratePerSecond: z.number().optional(),
          inferencesPerSecond: z.number(),
          p50Ms: z.number().optional(),
          p90Ms: z.number().optional(),
          p95Ms: z.number().optional(),
          p99Ms: z.number().optional(),
          queueMs: z.number().optional(),
          inputMs: z.number().optional(),
          inferMs: z.number().optional(),
          outputMs: z.number().optional(),
        }),
      ),
    }),
  ),
  /** Further notes for readers; whole sentences. */
  notes: z.array(z.string()),
  /** Whether parity holds, no request failed, and no load point exceeds what the device can compute. */
  passed: z.boolean(),
  failures: z.array(z.string()),
});
export type BenchRecord = z.infer<typeof benchRecord>;

export const benchRecordKind: RecordKind<BenchRecord> = {
  kind: "bench",
  version: benchRecordVersion,
  schema: benchRecord,
};

/**
 * Reads a saved record.
 *
 * @throws {UserError} one line; records of another kind or of an unknown version are rejected.
 */
export function readBenchRecord(file: string): BenchRecord {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new UserError(`${file}: ${readFailure(error)}`);
  }
  return parseBenchRecord(text, file);
}

/** Parses a saved record; see {@link parseRecordAs}. */
export function parseBenchRecord(text: string, displayPath: string): BenchRecord {
  return parseRecordAs(benchRecordKind, text, displayPath);
}
