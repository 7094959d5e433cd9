import { z } from "zod";
import { endpointNames, service, tritonServers } from "../../contract/environment.ts";
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
  /** Pairs of latency in microseconds and number of requests, ascending. */
  histogram: z.array(z.tuple([z.int().min(0), z.int().min(1)])),
  /** Failed requests by code. */
  errors: z.record(z.string(), z.int().min(1)),
});
export type Measurement = z.infer<typeof measurement>;

export const modelSubject = z.strictObject({
  /** Display name: `tiny`, `generated`, or a file name. */
  name: z.string(),
  /** Name of the model's spec; absent in older records, which are of openclip-vit-b32. */
  spec: z.string().optional(),
  /** Tower of the file; absent in older records, which are of images. */
  modality: z.enum(["image", "text"]).optional(),
  sha256: z.string().optional(),
  source: z.string().optional(),
  /** `random`: the embeddings are correct numerically but carry no meaning. */
  weights: z.string().optional(),
  architecture: z.string().optional(),
  seed: z.number().optional(),
  /** Precision, source file and tools of a prepared file, from its manifest. */
  precision: z.string().optional(),
  derivedFromSha256: z.string().optional(),
  toolVersions: z.record(z.string(), z.string()).optional(),
});
export type ModelSubject = z.infer<typeof modelSubject>;

/** Returns whether a file is a small generated one, because the generator does not know the architecture of the model. */
export function isStandIn({ architecture }: ModelSubject): boolean {
  return architecture === "stand-in";
}

export const environmentSubject = z.strictObject({
  name: z.string(),
  /** Docker endpoint or kubeconfig context of the environment. */
  where: z.string(),
  accelerator: z.enum(["gpu", "cpu"]),
  gpu: z.string().optional(),
  artefact: z.strictObject({
    file: z.string(),
    sha256: z.string(),
    /** Whether the file was changed after synthesis; it is verified as changed. */
    editedByHand: z.boolean(),
  }),
  services: z.array(
    z.strictObject({
      name: z.string(),
      kind: service.shape.kind,
      backend: service.shape.backend,
      /** Server of a deployed Triton: NVIDIA's server or the Triton emulator. */
      server: z.enum(tritonServers).optional(),
      resource: z.string(),
      processes: z.int().min(0),
      /** Declared limits of a container or pod: quantity by resource, such as `memory: 8Gi`. */
      limits: z.record(z.string(), z.string()).optional(),
    }),
  ),
  /** Model that the environment was compared with, if it is not the subject's. */
  model: modelSubject.optional(),
  /** Models that the environment was compared with, if it has several. */
  models: z.array(modelSubject).optional(),
  /** Intended differences between the run and the deployed environment. */
  notes: z.array(z.string()),
  seconds: z.number().min(0),
});
export type EnvironmentSubject = z.infer<typeof environmentSubject>;

/** Models of a run: the subject's first, then those that only some environments were compared with. */
export function modelsOf(
  model: ModelSubject,
  environments: readonly EnvironmentSubject[],
): readonly ModelSubject[] {
  const all = [model, ...environments.flatMap((own) => own.models ?? own.model ?? [])];
  const keyOf = ({ name, spec, modality, sha256 }: ModelSubject) =>
    [name, spec, modality, sha256].join(" ");
  return [...new Map(all.map((one) => [keyOf(one), one])).values()];
}

/** Machine of a run. Records of different machines are not compared. */
export const machineSubject = z.strictObject({
  cpu: z.string(),
  cores: z.int().min(1),
  memoryMiB: z.int().min(1),
  os: z.string(),
  node: z.string(),
  /** Frequency governor of the first core; absent if the kernel has none, as in most virtual machines. */
  governor: z.string().optional(),
  /** Limits of this process's control group; absent: no limit. */
  limits: z.strictObject({ cpus: z.number().optional(), memoryMiB: z.int().optional() }).optional(),
});

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
