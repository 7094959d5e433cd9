import { readFileSync } from "node:fs";
import { z } from "zod";
import { payloadFormats, serializations } from "../../contract/bench-endpoint.ts";
import { endpointNames } from "../../contract/environment.ts";
import { loadShape } from "../../contract/load-shape.ts";
import { readFailure } from "../../contract/read-failure.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  clientUse,
  latency,
  latencyHistogram,
  requestErrors,
  round,
} from "../../target/load/round.ts";
import { gpuUse } from "../../target/readings/gpu-readings.ts";
import { serverTimesSchema } from "../../target/readings/server-times.ts";
import {
  machineSubject,
  measuredSubject,
  modelSubject,
  targetKinds,
} from "../../target/subject/subject.ts";
import { parseRecordAs, type RecordKind } from "./parse-record.ts";
import { sloSearch } from "./slo-search.ts";
import { studyIds, studyResult } from "./study-result.ts";
import { tuneResult } from "./tune-result.ts";

/**
 * Saved run of `clipstack bench` or `clipstack sweep`. Every report, comparison and calibration is computed from this record
 * alone. `bench/record/bench-record.schema.json` is rendered from it (`npm run render`).
 */

/** Incremented when a field changes its name or meaning. */
export const benchRecordVersion = 3;

/**
 * Settings that a study overrode for this load point; an absent setting is that of the environment.
 */
export const conditions = z.strictObject({
  /** Queue delay of the model's dynamic batcher, in microseconds. */
  queueDelayUs: z.int().min(0).optional(),
  gpus: z.int().min(1).optional(),
  topology: z.enum(["instance-group", "per-gpu"]).optional(),
});
export type Conditions = z.infer<typeof conditions>;

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
  /** Images per request. With the payload format `text`, this and every other field and metric named after images counts texts. */
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
     * detect one.
     */
    verdict: z.enum(["stable", "drifting", "short", "interrupted"]),
    /** Relative change of the throughput from the first to the last window of a round, by regression; 0.1 = 10 % faster. */
    changeInRound: z.number().optional(),
    /** The same from the first to the last round. */
    changeOverRounds: z.number().optional(),
    /**
     * Smaller p-value of the two trend tests, 0..1: probability of a slope at least as steep if
     * there is no drift.
     */
    p: z.number().optional(),
  }),
  /** Total length of the measured windows. */
  seconds: z.number().min(0),
  /** Successful requests that were due in the measured windows, even if they ended later. Percentiles cover only these. */
  samples: z.int().min(0),
  /** Completed requests per second. This and the other rates are means of the rounds. */
  requestsPerSecond: z.number().min(0),
  imagesPerSecond: z.number().min(0),
  /** Open loop: fraction of the requests due in the measured windows that succeeded, 0..1. */
  achievedShare: z.number().optional(),
  /** Percentiles of the requests of all rounds together. */
  latencyMs: latency.optional(),
  /** [latency in microseconds, requests], ascending: the raw histogram. */
  histogram: latencyHistogram,
  /** Failed requests by code: in the measured windows, and including the warm-up. */
  errors: requestErrors,
  errorsWithWarmup: requestErrors,
  client: clientUse,
  server: serverTimesSchema.optional(),
  gpu: gpuUse.optional(),
  /** Reasons why the load point is invalid; whole sentences. */
  invalid: z.array(z.string()),
});
export type LoadPoint = z.infer<typeof loadPoint>;

export const benchRecord = z.strictObject({
  schema: z.literal(benchRecordVersion),
  kind: z.literal("bench"),
  /** UTC, ISO 8601. */
  startedAt: z.iso.datetime(),
  finishedAt: z.iso.datetime(),
  /** Whether Ctrl-C ended the run. Such a record contains the measurements made before. */
  interrupted: z.boolean(),
  /** System under test; without it the numbers mean nothing. */
  subject: z.strictObject({
    commit: z.string().optional(),
    dirty: z.boolean().optional(),
    /** `simulation`: local processes; `addresses`: given on the command line, environment unknown. */
    target: z.enum(targetKinds),
    /** Command line without secrets. */
    commandLine: z.array(z.string()).optional(),
    model: modelSubject,
    /** Machine of the load generator, and of the servers in a local simulation. */
    machine: machineSubject,
    ...measuredSubject.shape,
  }),
  settings: z.strictObject({
    /** Names of endpoints by `benchEndpointName`. */
    endpoints: z.array(z.string()),
    windowSeconds: z.number(),
    /** Measured windows per round. */
    windows: z.int().min(1),
    rounds: z.int().min(1),
    /** Length of the warm-up of each round. */
    warmupSeconds: z.number(),
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
  /** Result of `clipstack tune`, whose candidates are the environments of load points and searches. */
  tune: tuneResult.optional(),
  /** Measurements imported from the output of another program; reported next to the load points, never mixed with them. */
  imported: z.array(
    z.strictObject({
      program: z.enum(["perf_analyzer", "AIPerf", "vllm bench"]),
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

/** Reads a saved record. */
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
