import { z } from "zod";
import { machineSubject } from "../record/record.ts";
import { imageKinds, subjectNames } from "./loads.ts";

/**
 * One saved run of `clipstack bench-server`. The tables are computed from this and from nothing else.
 * `bench/baselines/server-record.schema.json` is the same as JSON Schema (`npm run render`).
 */

/** Bumped when a field changes meaning, so that old records are refused and not misread. */
export const serverRecordVersion = 1;

const latency = z.strictObject({
  /** Requests that were answered well after the warm-up; only they are counted here. */
  count: z.int().min(1),
  p50Ms: z.number(),
  p95Ms: z.number(),
  p99Ms: z.number(),
  maxMs: z.number(),
  /** False below the number of samples at which a p99 is more than one or two requests. */
  p99Reliable: z.boolean(),
  /** [latency in microseconds, requests], ascending. */
  histogram: z.array(z.tuple([z.int().min(0), z.int().min(1)])),
});

/** One subject under one load in one round, in a process of its own. */
export const benchRun = z.strictObject({
  load: z.string(),
  subject: z.enum(subjectNames),
  /** From 1. */
  round: z.int().min(1),
  /** Images per second of the measured window, between its answers. */
  imagesPerSecond: z.number().min(0).optional(),
  latency: latency.optional(),
  /** Requests that failed, by status or code. */
  failures: z.record(z.string(), z.int().min(1)),
  /** Processor time of the subject for an image, all its threads. */
  cpuMsPerImage: z.number().min(0).optional(),
  /** Part of the machine that was busy with what is no part of the measurement, 0..1. */
  othersShare: z.number().min(0).max(1).optional(),
  /** Processor time of the load generator, in cores. */
  generatorCores: z.number().min(0).optional(),
  /** From the start of the process to its first ready answer; for the limit, to the created session. */
  readyMs: z.number().min(0).optional(),
  /** Resident memory when it was ready, and at the end of the load; 10⁶ bytes. */
  residentMB: z.number().min(0).optional(),
  residentAfterMB: z.number().min(0).optional(),
  /** What a request took beyond decoding and resizing and beyond the model. */
  added: z
    .strictObject({
      ms: z.number(),
      /** `metrics`: the mean, from the server's histograms. `Server-Timing`: the median, in records of before 2026-11-24. */
      from: z.enum(["Server-Timing", "metrics"]),
    })
    .optional(),
  /** Of the health checks that were sent meanwhile. */
  health: latency.optional(),
  healthFailures: z.record(z.string(), z.int().min(1)).optional(),
  /** Smallest cosine between its embeddings of the load's images and those of `server`. */
  cosineToServer: z.number().optional(),
  /** Of the limit: creation of the session, and each batch size. */
  createMs: z.number().min(0).optional(),
  batchSizes: z
    .array(
      z.strictObject({
        batchSize: z.int().min(1),
        runs: z.int().min(1),
        imagesPerSecond: z.number().min(0),
        cpuMsPerImage: z.number().min(0),
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
  /** What was measured: without it the numbers mean nothing. */
  subject: z.strictObject({
    commit: z.string().optional(),
    /** Files differed from the commit. */
    dirty: z.boolean().optional(),
    machine: machineSubject,
    /** Packages of the server and of the load generator, with their versions. */
    versions: z.record(z.string(), z.string()),
    models: z.strictObject({
      full: modelFile.optional(),
      tiny: modelFile.optional(),
    }),
    /** What the limit runs. */
    limit: z.strictObject({ file: z.string(), form: z.string(), sessionOptions: z.unknown() }),
    /** Prepared files of the model, and their agreement with the standard file. */
    forms: z.array(
      z.strictObject({
        precision: z.enum(["fp32", "int8"]),
        parts: z.array(z.string()),
        images: z.int(),
        minCosine: z.number(),
        meanCosine: z.number(),
        maxDifference: z.number(),
      }),
    ),
    peer: z.discriminatedUnion("measured", [
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

/** `bench/baselines/server-record.schema.json`, whole. */
export function renderServerRecordSchema(): string {
  const schema = z.toJSONSchema(serverRecord, { target: "draft-2020-12" });
  return `${JSON.stringify({ title: "clipstack bench-server record", ...schema }, null, 2)}\n`;
}
