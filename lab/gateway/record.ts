import { z } from "zod";
import { parseRecordAs, type RecordKind } from "../../bench/record/parse-record.ts";
import { machineSubject } from "../../target/subject/subject.ts";
import { imageKinds } from "../server/loads.ts";
import { gatewaySubjects } from "./loads.ts";

/**
 * Saved run of `npm run lab -- gateway`. The report is computed from this record alone.
 */

/** Incremented when a field changes. */
export const gatewayRecordVersion = 1;

/** One subject under one load in one round, in new processes. */
const gatewayRun = z.strictObject({
  load: z.string(),
  subject: z.enum(gatewaySubjects),
  round: z.int().min(1),
  /** Processor time of the subject per image, over all threads; excludes the Triton and the clients. */
  cpuMsPerImage: z.number().min(0),
  /** Measured rate, which other processes of the machine lower. */
  imagesPerSecond: z.number().min(0),
  /** Absent for the ceiling. */
  latency: z.strictObject({ p50Ms: z.number(), p95Ms: z.number(), p99Ms: z.number() }).optional(),
  /** Number of failed requests by status or code. */
  failures: z.record(z.string(), z.int().min(1)),
  /** Share of the machine used by processes outside the measurement, 0..1. */
  othersShare: z.number().min(0).max(1).optional(),
});
export type GatewayRun = z.infer<typeof gatewayRun>;

export const gatewayRecord = z.strictObject({
  schema: z.literal(gatewayRecordVersion),
  kind: z.literal("bench-gateway"),
  /** UTC, ISO 8601. */
  startedAt: z.iso.datetime(),
  finishedAt: z.iso.datetime(),
  subject: z.strictObject({
    commit: z.string().optional(),
    /** Whether files differed from the commit. */
    dirty: z.boolean().optional(),
    machine: machineSubject,
    /** Name of the model's spec, which determines size and filter of the resize. */
    model: z.string(),
    /** Python packages of the baseline and the ceiling, or the reason for measuring neither. */
    baseline: z.union([
      z.strictObject({ packages: z.array(z.string()) }),
      z.strictObject({ reason: z.string() }),
    ]),
    /** Whether each subject was bound to its cores with `taskset`. */
    pinned: z.boolean(),
    images: z.array(z.strictObject({ kind: z.enum(imageKinds), bytes: z.array(z.int()) })),
    settings: z.strictObject({
      rounds: z.int().min(1),
      seconds: z.number(),
      warmupSeconds: z.number(),
      loads: z.array(z.string()),
    }),
  }),
  runs: z.array(gatewayRun),
});
export type GatewayRecord = z.infer<typeof gatewayRecord>;

export const gatewayRecordKind: RecordKind<GatewayRecord> = {
  kind: "bench-gateway",
  version: gatewayRecordVersion,
  schema: gatewayRecord,
};

/** Parses a saved record; see {@link parseRecordAs}. */
export function parseGatewayRecord(text: string, displayPath: string): GatewayRecord {
  return parseRecordAs(gatewayRecordKind, text, displayPath);
}
