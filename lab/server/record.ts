import { z } from "zod";
import { parseRecordAs, type RecordKind } from "../../bench/record/parse-record.ts";
import { machineSubject } from "../../target/subject/subject.ts";
import { imageKinds, subjectNames } from "./loads.ts";

/**
 * Saved run of `npm run lab -- server`. The report is computed from this record alone.
 */

/** Incremented when a field changes. */
export const serverRecordVersion = 2;

const latency = z.strictObject({
  /** Successful requests after the warm-up; failures are not included. */
  count: z.int().min(1),
  p50Ms: z.number(),
  p95Ms: z.number(),
  p99Ms: z.number(),
  maxMs: z.number(),
  /** False if there are too few samples for a p99. */
  p99Reliable: z.boolean(),
  /** [latency in microseconds, requests], ascending. */
  histogram: z.array(z.tuple([z.int().min(0), z.int().min(1)])),
});

/** One subject under one load in one round, in a separate process. */
const benchRun = z.strictObject({
  load: z.string(),
  subject: z.enum(subjectNames),
  round: z.int().min(1),
  /** Images, or texts, per second in the measured window, between its first and last response. */
  imagesPerSecond: z.number().min(0).optional(),
  latency: latency.optional(),
  /** Number of failed requests by status or code. */
  failures: z.record(z.string(), z.int().min(1)),
  /** CPU time of the subject per image, over all threads. */
  cpuMsPerImage: z.number().min(0).optional(),
  /** Share of the machine used by processes outside the measurement, 0..1. */
  othersShare: z.number().min(0).max(1).optional(),
  /** CPU utilisation of the load generator, in cores. */
  generatorCores: z.number().min(0).optional(),
  /** Time from the start of the process until it is ready; for the ceiling, until its session is created. */
  readyMs: z.number().min(0).optional(),
  /** Resident memory when ready and at the end of the load, in 10⁶ bytes. */
  residentMB: z.number().min(0).optional(),
  residentAfterMB: z.number().min(0).optional(),
  /** Request time beyond decoding, resizing and inference. */
  added: z
    .strictObject({
      ms: z.number(),
      /** `metrics`: mean, from the server's histograms. `Server-Timing`: median, in records from before 2026-11-24. */
      from: z.enum(["Server-Timing", "metrics"]),
    })
    .optional(),
  /** Latency of the health checks during the load. */
  health: latency.optional(),
  healthFailures: z.record(z.string(), z.int().min(1)).optional(),
  /** Minimum cosine similarity of its embeddings to those of `server`. */
  cosineToServer: z.number().optional(),
  /** Ceiling only: time to create the session, and results by batch size. */
  createMs: z.number().min(0).optional(),
  batchSizes: z
    .array(
      z.strictObject({
        batchSize: z.int().min(1),
        runs: z.int().min(1),
        imagesPerSecond: z.number().min(0),
        cpuMsPerImage: z.number().min(0),
        /** Median time of a run; absent in records from before 2026-11-24. */
        p50Ms: z.number().min(0).optional(),
      }),
    )
    .optional(),
});
export type BenchRun = z.infer<typeof benchRun>;

const modelFile = z.strictObject({
  /** Name of the file, without its folder. */
  file: z.string(),
  sha256: z.string(),
  bytes: z.int().min(1),
  weights: z.string(),
  source: z.string(),
});

export const serverRecord = z.strictObject({
  schema: z.literal(serverRecordVersion),
  kind: z.literal("bench-server"),
  /** UTC, ISO 8601. */
  startedAt: z.iso.datetime(),
  finishedAt: z.iso.datetime(),
  /** System under test; without it the numbers mean nothing. */
  subject: z.strictObject({
    commit: z.string().optional(),
    /** Whether files differed from the commit. */
    dirty: z.boolean().optional(),
    machine: machineSubject,
    /** Packages of the server and of the load generator, with their versions. */
    versions: z.record(z.string(), z.string()),
    /** `full` and `tiny`: image tower of the default model; otherwise by tower, such as `dinov2-small:image`. */
    models: z.record(z.string(), modelFile),
    /** Model files and session options of the ceiling. */
    ceiling: z.strictObject({
      /** Names of the files, separated by commas. */
      file: z.string(),
      /** Optimisations of the files. */
      precision: z.string(),
      sessionOptions: z.unknown(),
    }),
    /** Optimised models, and the agreement of their embeddings with those of the original file. */
    optimisedModels: z.array(
      z.strictObject({
        /** Key in `models`; absent in records from before 2026-11-24. */
        model: z.string().optional(),
        precision: z.enum(["fp32", "int8"]),
        parts: z.array(z.string()),
        images: z.int(),
        minCosine: z.number(),
        meanCosine: z.number(),
        maxDifference: z.number(),
      }),
    ),
    baseline: z.discriminatedUnion("measured", [
      z.strictObject({
        measured: z.literal(true),
        packages: z.array(z.string()),
        settings: z.record(z.string(), z.string()),
      }),
      z.strictObject({ measured: z.literal(false), reason: z.string() }),
    ]),
    images: z.array(
      z.strictObject({
        kind: z.enum(imageKinds),
        width: z.int(),
        height: z.int(),
        bytes: z.array(z.int()),
      }),
    ),
    settings: z.strictObject({
      rounds: z.int().min(1),
      seconds: z.number(),
      warmupSeconds: z.number(),
      loads: z.array(z.string()),
      loadGenerator: z.string(),
    }),
  }),
  runs: z.array(benchRun),
});
export type ServerRecord = z.infer<typeof serverRecord>;

export const serverRecordKind: RecordKind<ServerRecord> = {
  kind: "bench-server",
  version: serverRecordVersion,
  schema: serverRecord,
};

/** Parses a saved record; see {@link parseRecordAs}. */
export function parseServerRecord(text: string, displayPath: string): ServerRecord {
  return parseRecordAs(serverRecordKind, text, displayPath);
}
