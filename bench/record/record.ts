import { z } from "zod";
import { endpointNames, tritonServers } from "../../contract/environment.ts";
import { parseRecordAs } from "./parse-record.ts";
import { upgradeVerifyRecord } from "./upgrade.ts";

/**
 * One saved run. Every report is computed from this and from nothing else, so an old run can be read, compared and
 * rendered again. `bench/record/record.schema.json` is the same as JSON Schema (`npm run render`).
 */

/** Incremented when a field changes its name or meaning. Records of schema 1 are upgraded when read. */
export const recordSchemaVersion = 2;

const outcome = z.enum(["pass", "fail", "skip"]);

export const checkResult = z.strictObject({
  /** Name of the check, as in `verify/checks/registry.ts`. */
  id: z.string(),
  environment: z.string(),
  service: z.string(),
  endpoint: z.enum(endpointNames).optional(),
  /** The container or Deployment behind it: Terraform address and name. */
  resource: z.string(),
  outcome,
  /** What was found: for a failure, what is wrong; for a skip, why. */
  message: z.string(),
  /** Numbers that were measured, units in their names. */
  measured: z.record(z.string(), z.number()),
  /** For parity: each image. */
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
  /** The load: each client sends its next request when the last one was answered. */
  load: z.strictObject({
    kind: z.literal("closed loop"),
    concurrency: z.int().min(1),
    imagesPerRequest: z.int().min(1),
    seconds: z.number().min(0),
  }),
  /** Requests answered well; only they are in the percentiles. */
  samples: z.int().min(0),
  imagesPerSecond: z.number().min(0),
  latencyMs: z
    .strictObject({
      p50: z.number(),
      p95: z.number(),
      p99: z.number(),
      max: z.number(),
      /** False below the minimum number of samples: such a p99 is one or two requests. */
      p99Reliable: z.boolean(),
    })
    .optional(),
  /** [latency in microseconds, requests], ascending. */
  histogram: z.array(z.tuple([z.int().min(0), z.int().min(1)])),
  /** Failed requests by code. */
  errors: z.record(z.string(), z.int().min(1)),
});
export type Measurement = z.infer<typeof measurement>;

export const modelSubject = z.strictObject({
  /** What the model is, for people: `tiny`, `generated`, or a file's name. */
  name: z.string(),
  sha256: z.string().optional(),
  source: z.string().optional(),
  /** `random`: the numbers are right, the embeddings mean nothing. */
  weights: z.string().optional(),
  architecture: z.string().optional(),
  seed: z.number().optional(),
});
export type ModelSubject = z.infer<typeof modelSubject>;

export const environmentSubject = z.strictObject({
  name: z.string(),
  /** Docker endpoint or kubeconfig context of the real thing. */
  where: z.string(),
  accelerator: z.enum(["gpu", "cpu"]),
  gpu: z.string().optional(),
  artefact: z.strictObject({
    file: z.string(),
    sha256: z.string(),
    /** The file was changed after it was synthesized, and verified as it lies. */
    editedByHand: z.boolean(),
  }),
  services: z.array(
    z.strictObject({
      name: z.string(),
      kind: z.enum(["embed", "triton"]),
      backend: z.enum(["onnxruntime", "tensorrt", "triton"]),
      /** Of a Triton that is deployed: NVIDIA's server, or the Triton emulator. */
      server: z.enum(tritonServers).optional(),
      resource: z.string(),
      processes: z.int().min(0),
    }),
  ),
  /** Model that the environment was compared with, if it is not the subject's. */
  model: modelSubject.optional(),
  /** Where the run differed from the real thing on purpose. */
  notes: z.array(z.string()),
  seconds: z.number().min(0),
});
export type EnvironmentSubject = z.infer<typeof environmentSubject>;

/** What a run ran on. Two records of different machines are not compared. */
export const machineSubject = z.strictObject({
  cpu: z.string(),
  cores: z.int().min(1),
  memoryMiB: z.int().min(1),
  os: z.string(),
  node: z.string(),
});

export const verifyRecord = z.strictObject({
  schema: z.literal(recordSchemaVersion),
  kind: z.literal("verify"),
  /** UTC, ISO 8601. */
  startedAt: z.iso.datetime(),
  finishedAt: z.iso.datetime(),
  /** What was measured: without it the numbers mean nothing. */
  subject: z.strictObject({
    commit: z.string().optional(),
    /** Files differed from the commit. */
    dirty: z.boolean().optional(),
    target: z.enum(["simulation", "deployed"]),
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
  /** Nothing failed. */
  passed: z.boolean(),
});
export type VerifyRecord = z.infer<typeof verifyRecord>;

/** `bench/record/record.schema.json`, whole. */
export function renderRecordSchema(): string {
  const schema = z.toJSONSchema(verifyRecord, { target: "draft-2020-12" });
  return `${JSON.stringify({ title: "clipstack verify record", ...schema }, null, 2)}\n`;
}

/** Parses a saved record; see {@link parseRecordAs}. */
export function parseRecord(text: string, shown: string): VerifyRecord {
  const kind = {
    kind: "verify",
    version: recordSchemaVersion,
    schema: verifyRecord,
    upgrade: upgradeVerifyRecord,
  };
  return parseRecordAs(kind, text, shown);
}
