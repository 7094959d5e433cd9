import { z } from "zod";
import { endpointNames } from "../../contract/environment.ts";
import { latencyHistogram, requestErrors } from "../../target/load/round.ts";
import { environmentSubject, machineSubject, modelSubject } from "../../target/subject/subject.ts";
import { parseRecordAs, type RecordKind } from "./parse-record.ts";

/**
 * Record of a run. Reports are computed from the record alone, so that saved runs can be compared and rendered again.
 * `bench/record/record.schema.json` is the corresponding JSON Schema (`npm run render`).
 */

/** Incremented when a field changes its name or meaning. */
export const recordSchemaVersion = 2;

const outcome = z.enum(["pass", "fail", "skip"]);

export const checkResult = z.strictObject({
  /** Name of the check, as in `verify/checks/registry.ts`. */
  id: z.string(),
  environment: z.string(),
  service: z.string(),
  endpoint: z.enum(endpointNames).optional(),
  /** Name of the model's spec, if the service has several models. */
  model: z.string().optional(),
  /** Container or Deployment: Terraform address and name. */
  resource: z.string(),
  outcome,
  /** Finding; for a failure, the cause; for a skip, the reason. */
  message: z.string(),
  /** Measured values, with units in their names. */
  measured: z.record(z.string(), z.number()),
  /** Results per image of the parity check. */
  images: z
    .array(
      z.strictObject({
        image: z.string(),
        cosine: z.number(),
        relativeDifference: z.number(),
      }),
    )
    .optional(),
});
export type CheckResult = z.infer<typeof checkResult>;

export const measurement = z.strictObject({
  environment: z.string(),
  service: z.string(),
  endpoint: z.enum(endpointNames),
  /** Name of the model's spec, if the service has several models. */
  model: z.string().optional(),
  /** Closed-loop load: each client sends its next request after the previous response. */
  load: z.strictObject({
    kind: z.literal("closed loop"),
    concurrency: z.int().min(1),
    imagesPerRequest: z.int().min(1),
    seconds: z.number().min(0),
  }),
  /** Successful requests; only these are part of the percentiles. */
  samples: z.int().min(0),
  imagesPerSecond: z.number().min(0),
  latencyMs: z
    .strictObject({
      p50: z.number(),
      p95: z.number(),
      p99: z.number(),
      max: z.number(),
      /** False below the minimum number of samples, because the p99 then depends on one or two requests. */
      p99Reliable: z.boolean(),
    })
    .optional(),
  histogram: latencyHistogram,
  errors: requestErrors,
});
export type Measurement = z.infer<typeof measurement>;

/** `addresses`: embedding servers of any kind. */
const verifyTargets = ["simulation", "deployed", "addresses"] as const;
export type VerifyTarget = (typeof verifyTargets)[number];

export const verifyRecord = z.strictObject({
  schema: z.literal(recordSchemaVersion),
  kind: z.literal("verify"),
  /** UTC, ISO 8601. */
  startedAt: z.iso.datetime(),
  finishedAt: z.iso.datetime(),
  subject: z.strictObject({
    commit: z.string().optional(),
    /** Whether files differed from the commit. */
    dirty: z.boolean().optional(),
    target: z.enum(verifyTargets),
    server: z.string(),
    model: modelSubject,
    machine: machineSubject,
    settings: z.strictObject({
      portOffset: z.int(),
      secondsPerEndpoint: z.number().min(0),
      concurrency: z.int().min(1),
      sampleImages: z.array(z.string()),
      cosineAtLeast: z.number(),
      relativeDifferenceAtMost: z.number(),
      p99MinimumSamples: z.int(),
    }),
  }),
  environments: z.array(environmentSubject),
  checks: z.array(checkResult),
  measurements: z.array(measurement),
  /** Whether no check failed. */
  passed: z.boolean(),
});
export type VerifyRecord = z.infer<typeof verifyRecord>;

export const verifyRecordKind: RecordKind<VerifyRecord> = {
  kind: "verify",
  version: recordSchemaVersion,
  schema: verifyRecord,
};

/** Parses a saved record; see {@link parseRecordAs}. */
export function parseRecord(text: string, displayPath: string): VerifyRecord {
  return parseRecordAs(verifyRecordKind, text, displayPath);
}
