import { readFileSync } from "node:fs";
import { z } from "zod";
import { endpointNames } from "../../contract/environment.ts";
import { UserError } from "../../contract/user-error.ts";
import { type GpuReadingName, gpuReadingNames } from "./gpu-readings.ts";
import { parseRecordAs } from "./parse-record.ts";
import { environmentSubject, machineSubject, measurement, modelSubject } from "./record.ts";
import { upgradeBenchRecord } from "./upgrade.ts";

/**
 * One saved run of `clipstack bench` or `clipstack sweep`. Every report, comparison and calibration is computed from this
 * and from nothing else. `bench/record/bench-record.schema.json` is the same as JSON Schema (`npm run render`).
 */

/** Incremented when a field changes its name or meaning. Records of schema 1 are upgraded when read. */
export const benchRecordVersion = 2;

/** What a request carries of an image. */
export const payloadFormats = [
  /** The file as it is: JPEG, PNG or WebP. The server decodes it. */
  "jpeg",
  /** float32, `[3, 224, 224]`, preprocessed: 602 112 bytes. */
  "fp32",
  /** 8-bit pixels, `[224, 224, 3]`: 150 528 bytes. */
  "uint8",
] as const;
export type PayloadFormat = (typeof payloadFormats)[number];

/** How a tensor is written in an HTTP request: the binary extension of the Open Inference Protocol, or JSON text. */
export const serializations = ["binary", "json"] as const;
export type Serialization = (typeof serializations)[number];

/** Way from a client to an embedding, with what is sent on it. */
export interface BenchEndpoint {
  readonly endpoint: (typeof endpointNames)[number];
  readonly payload: PayloadFormat;
  readonly serialization: Serialization;
}

/**
 * Name of a path with its payload, as `--backend` takes it: the protocol path alone with its usual payload (`encoded` for
 * the embed API, `fp32` for a Triton), else `onnx-http_uint8`, `onnx-http_jpeg`, `onnx-http_json`.
 */
export function benchEndpointName({ endpoint, payload, serialization }: BenchEndpoint): string {
  const usual = endpoint === "embed-http" ? "jpeg" : "fp32";
  const variant = payload === usual ? "" : payload === "jpeg" ? "_jpeg" : `_${payload}`;
  return `${endpoint}${variant}${serialization === "json" && endpoint !== "embed-http" ? "_json" : ""}`;
}

/** The studies of `clipstack sweep`. */
export const studyIds = [
  "cold-start",
  "batch",
  "concurrency",
  "queue-delay",
  "protocol",
  "serialization",
  "link",
  "operators",
  "memory",
  "scaling",
  "topology",
] as const;
export type StudyId = (typeof studyIds)[number];

/** What each study asks, in words for the report. */
export const studyQuestions: Readonly<Record<StudyId, string>> = {
  "cold-start": "How long from nothing to the first embedding?",
  batch: "What does a larger batch cost in latency, and what does it give in throughput?",
  concurrency: "How does throughput grow with concurrency, and where does it stop?",
  "queue-delay": "What does the batcher's queue delay cost one client, and give many?",
  protocol: "HTTP or gRPC, for which batch?",
  serialization: "What does JSON cost against binary tensors?",
  link: "What will a remote client see: which payload for which bandwidth and round trip?",
  operators: "Which operators take the compute, and does any fall back to the CPU?",
  memory: "How much memory does each backend hold?",
  scaling: "How much of N GPUs is used, against one?",
  topology: "One Triton over all GPUs, or one for each?",
};

export const loadShape = z.discriminatedUnion("kind", [
  z.strictObject({
    kind: z.literal("closed loop"),
    /** Clients; each sends its next request when the last one was answered. */
    concurrency: z.int().min(1),
  }),
  z.strictObject({
    kind: z.literal("open loop"),
    arrivals: z.enum(["constant", "poisson"]),
    /** Requests a second that are sent whether or not earlier ones were answered. */
    ratePerSecond: z.number().gt(0),
    /** Of the random arrivals: the same seed gives the same times. */
    seed: z.int(),
  }),
]);
export type LoadShape = z.infer<typeof loadShape>;

/** What a cell was measured under, where a study changed it. */
export const conditions = z.strictObject({
  /** Queue delay of the model's dynamic batcher, in microseconds. */
  queueDelayUs: z.int().min(0).optional(),
  /** Of an emulated link between client and server, each direction, in megabits (10^6) a second. */
  bandwidthMbps: z.number().gt(0).optional(),
  /** Added by the emulated link, in milliseconds, there and back. */
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
  /** False below the minimum number of samples: such a p99 is one or two requests. */
  p99Reliable: z.boolean(),
});

/** One measurement window. */
export const window = z.strictObject({
  seconds: z.number().gt(0),
  /** Answered well within the window. */
  requests: z.int().min(0),
  imagesPerSecond: z.number().min(0),
  p99Ms: z.number().optional(),
  failed: z.int().min(0),
});

/** Means over the requests of the measured windows, from the server's own counters, in milliseconds a request. */
export const serverTimes = z.strictObject({
  /** `triton`: `nv_inference_*`; `embed`: the embed server's histograms. */
  source: z.enum(["triton", "embed"]),
  requests: z.number().min(0),
  executions: z.number().min(0).optional(),
  /** Images for each execution of the model. */
  averageBatch: z.number().min(0).optional(),
  /** Whole time in the server. */
  requestMs: z.number().optional(),
  /** Decoding and preprocessing of the images: of the embed API, and of the payload `encoded` to a Triton. */
  decodeMs: z.number().optional(),
  queueMs: z.number().optional(),
  inputMs: z.number().optional(),
  inferMs: z.number().optional(),
  outputMs: z.number().optional(),
});

export const gpuUse = z.strictObject({
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

/** The load generator itself: nobody should measure it by mistake. */
export const clientUse = z.strictObject({
  /** Processes that sent requests. */
  workers: z.int().min(1),
  /** Cores that the busiest worker used, 0..1. */
  busiestWorkerCores: z.number(),
  /** Highest p99 of any worker's event-loop delay, milliseconds. */
  eventLoopDelayP99Ms: z.number(),
  /** Part of the requests that left more than 1 ms (or 10 % of the mean gap, what is more) after they were due, 0..1. */
  delayedSends: z.number(),
});

/** One load on one path, measured. */
export const loadPoint = z.strictObject({
  /** Unique in the record, for people too: `onnx-http b8 c4`. */
  id: z.string(),
  study: z.enum(studyIds).optional(),
  environment: z.string(),
  service: z.string(),
  endpoint: z.enum(endpointNames),
  payload: z.enum(payloadFormats),
  serialization: z.enum(serializations),
  imagesPerRequest: z.int().min(1),
  /** Body of a request and of an answer, mean bytes. */
  requestBytes: z.number().min(0),
  responseBytes: z.number().min(0),
  load: loadShape,
  conditions,
  warmup: z.strictObject({ seconds: z.number(), requests: z.int() }),
  /** All windows in order; the figures are of the last `measuredWindows`. */
  windows: z.array(window),
  measuredWindows: z.int().min(0),
  stability: z.strictObject({
    /** `stable`: the measured windows agree; `unstable`: they never did; `short`: too few windows to say. */
    verdict: z.enum(["stable", "unstable", "short", "interrupted"]),
    /** Largest deviation from the mean of the measured windows, 0..1. */
    throughputDeviation: z.number().optional(),
    p99Deviation: z.number().optional(),
    /** The limit for both. */
    tolerance: z.number(),
  }),
  /** Length of the measured windows together. */
  seconds: z.number().min(0),
  /** Requests due in them that were answered well, also later; only these are in the percentiles. */
  samples: z.int().min(0),
  requestsPerSecond: z.number().min(0),
  imagesPerSecond: z.number().min(0),
  /** Open loop: requests that were due in the measured windows, and those of them that were answered well, 0..1. */
  achievedShare: z.number().optional(),
  latencyMs: latency.optional(),
  /** [latency in microseconds, requests], ascending: the raw histogram. */
  histogram: measurement.shape.histogram,
  /** Failed requests by code: of the measured windows, and of the whole load with its warm-up. */
  errors: measurement.shape.errors,
  errorsWithWarmup: measurement.shape.errors,
  client: clientUse,
  server: serverTimes.optional(),
  gpu: gpuUse.optional(),
  /** Why the figures must not be trusted, in whole sentences; none: the cell is valid. */
  invalid: z.array(z.string()),
});
export type LoadPoint = z.infer<typeof loadPoint>;

const studyHead = { environment: z.string(), notes: z.array(z.string()) };

/** What a study found that is not a cell. Studies of cells alone list no more than their notes. */
export const studyResult = z.discriminatedUnion("study", [
  z.strictObject({
    ...studyHead,
    study: z.literal("cold-start"),
    starts: z.array(
      z.strictObject({
        service: z.string(),
        round: z.int(),
        /** Milliseconds since its process was started; of a deployed container, since it was restarted. */
        liveMs: z.number().optional(),
        readyMs: z.number(),
        /** The first answer, asked for when ready, and one when warm. */
        firstRequestMs: z.number(),
        warmRequestMs: z.number(),
      }),
    ),
  }),
  z.strictObject({
    ...studyHead,
    study: z.literal("operators"),
    service: z.string(),
    model: z.string(),
    batch: z.int(),
    runs: z.int(),
    nodes: z.int(),
    /** Nodes that ran on the CPU although another execution provider was asked for. */
    cpuFallbacks: z.int(),
    operators: z.array(
      z.strictObject({
        operator: z.string(),
        provider: z.string(),
        nodes: z.int(),
        msPerRun: z.number(),
        share: z.number(),
      }),
    ),
  }),
  z.strictObject({
    ...studyHead,
    study: z.literal("memory"),
    services: z.array(
      z.strictObject({
        service: z.string(),
        /** Resident memory of its processes, MiB: when ready, and the highest under load. */
        residentMiB: z.number().optional(),
        residentUnderLoadMiB: z.number().optional(),
        gpuMemoryMiB: z.number().optional(),
        gpuMemoryUnderLoadMiB: z.number().optional(),
      }),
    ),
  }),
  z.strictObject({
    ...studyHead,
    study: z.literal("serialization"),
    /** Time of the client alone to write and read one request's tensors, median. */
    client: z.array(
      z.strictObject({
        serialization: z.enum(serializations),
        batch: z.int(),
        encodeMs: z.number(),
        decodeMs: z.number(),
        bytes: z.int(),
      }),
    ),
  }),
  ...(
    ["batch", "concurrency", "queue-delay", "protocol", "link", "scaling", "topology"] as const
  ).map((study) => z.strictObject({ ...studyHead, study: z.literal(study) })),
]);
export type StudyResult = z.infer<typeof studyResult>;

export const price = z.strictObject({
  usdPerHour: z.number().min(0),
  /** Day the price was seen, as its source gives it. */
  date: z.string(),
  /** Who asks that price: the settings' GPU catalogue, or `--price`. */
  source: z.string(),
});
export type Price = z.infer<typeof price>;

export const benchRecord = z.strictObject({
  schema: z.literal(benchRecordVersion),
  kind: z.literal("bench"),
  /** UTC, ISO 8601. */
  startedAt: z.iso.datetime(),
  finishedAt: z.iso.datetime(),
  /** Ctrl-C ended the run: what was measured until then is here. */
  interrupted: z.boolean(),
  /** What was measured: without it the numbers mean nothing. */
  subject: z.strictObject({
    commit: z.string().optional(),
    dirty: z.boolean().optional(),
    /** `endpoints`: addresses given by hand, of which no environment is known. */
    target: z.enum(["simulation", "deployed", "addresses"]),
    /** Name and version that the servers gave, for each service. */
    servers: z.array(
      z.strictObject({ service: z.string(), name: z.string(), version: z.string() }),
    ),
    model: modelSubject,
    /** Where the load generator ran; with the embedded runtime the servers too. */
    machine: machineSubject,
    gpu: z
      .strictObject({ name: z.string(), count: z.int().min(1), vramMiB: z.int().optional() })
      .optional(),
    price: price.optional(),
    environments: z.array(environmentSubject),
  }),
  settings: z.strictObject({
    /** Names of paths, as {@link benchEndpointName} writes them. */
    endpoints: z.array(z.string()),
    windowSeconds: z.number(),
    /** Windows that must agree. */
    stableWindows: z.int(),
    tolerance: z.number(),
    maxWindows: z.int(),
    /** Requests that were measured for each cell in place of windows; only in records before 2026-11-24. */
    iterations: z.int().optional(),
    /** Ceiling for one cell, warm-up included, in seconds. */
    durationSeconds: z.number(),
    seed: z.int(),
    p99MinimumSamples: z.int(),
    images: z.strictObject({ source: z.string(), count: z.int(), meanBytes: z.number() }),
  }),
  /** Before anything was timed: how far the answers of each path are from the local reference. */
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
      /** What is wrong, or why it was not compared. */
      message: z.string(),
    }),
  ),
  loadPoints: z.array(loadPoint),
  studies: z.array(studyResult),
  /** Measured by another program, read from its output: shown beside the cells, never mixed with them. */
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
  /** What a reader must know besides, in whole sentences. */
  notes: z.array(z.string()),
  /** Parity held, no request failed, and no cell is above what the device can compute. */
  passed: z.boolean(),
  failures: z.array(z.string()),
});
export type BenchRecord = z.infer<typeof benchRecord>;

/** `bench/record/bench-record.schema.json`, whole. */
export function renderBenchRecordSchema(): string {
  const schema = z.toJSONSchema(benchRecord, { target: "draft-2020-12" });
  return `${JSON.stringify({ title: "clipstack bench record", ...schema }, null, 2)}\n`;
}

/**
 * Read a saved record.
 *
 * @throws {UserError} one line; a record of another kind or version is refused by its name or number.
 */
export function readBenchRecord(file: string): BenchRecord {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch {
    throw new UserError(`${file}: cannot be read`);
  }
  return parseBenchRecord(text, file);
}

/** Parses a saved record; see {@link parseRecordAs}. */
export function parseBenchRecord(text: string, shown: string): BenchRecord {
  const kind = {
    kind: "bench",
    version: benchRecordVersion,
    schema: benchRecord,
    upgrade: upgradeBenchRecord,
  };
  return parseRecordAs(kind, text, shown);
}
