import { z } from "zod";
import { parseRecordAs, type RecordKind } from "../../bench/record/parse-record.ts";
import { machineSubject } from "../../target/subject/subject.ts";

/**
 * Record of one drill. The report is computed from it (`drill-report.ts`).
 * `verify/drills/drill-record.schema.json` is the same schema as JSON Schema, written by `npm run render`.
 */

/** Incremented when a field changes meaning. */
export const drillRecordSchemaVersion = 2;

/** Names of the drills on a cluster and on a Docker host; `registry.ts` has a drill for each. */
export const clusterDrillNames = ["rollout", "scale", "drain", "quota"] as const;
export const hostDrillNames = [
  "kill",
  "freeze",
  "network",
  "queue",
  "memory",
  "disk",
  "model",
  "certificate",
] as const;
export type ClusterDrillName = (typeof clusterDrillNames)[number];
export type HostDrillName = (typeof hostDrillNames)[number];
export type DrillName = ClusterDrillName | HostDrillName;

/** `clipstack canary` writes the record of a drill, too. */
export const canaryName = "canary";

const latency = z.strictObject({
  /** Number of successful requests, the only ones in the percentiles. */
  samples: z.int().min(0),
  p50: z.number(),
  p95: z.number(),
  p99: z.number(),
  max: z.number(),
  /** False below the minimum number of samples, because p99 would be one or two requests. */
  p99Reliable: z.boolean(),
});

export const phaseLoad = z.strictObject({
  /** Phase of the drill in which the requests were due. */
  phase: z.string(),
  seconds: z.number().min(0),
  requests: z.int().min(0),
  failed: z.int().min(0),
  /** Requests that received 429 or 503 with `Retry-After`, by status; they count as failed only on a cluster. */
  rejected: z.record(z.string(), z.int().min(1)).optional(),
  /** Longest time within the phase without a successful response. */
  longestGapMs: z.number().min(0).optional(),
  /** Time from the start of the phase until its last request without a successful response had ended; 0 if every request succeeded. */
  disturbedSeconds: z.number().min(0).optional(),
  /** Failed requests by code. */
  errors: z.record(z.string(), z.int().min(1)),
  latencyMs: latency.optional(),
});
export type PhaseLoad = z.infer<typeof phaseLoad>;

export const drillCheck = z.strictObject({
  /** Expected behaviour, as a sentence. */
  claim: z.string(),
  passed: z.boolean(),
  /** Observed behaviour. */
  message: z.string(),
});
export type DrillCheck = z.infer<typeof drillCheck>;

/** Numbers of pods, recorded whenever one of them changes. */
export const replicaPoint = z.strictObject({
  atSeconds: z.number().min(0),
  /** `spec.replicas` of the Deployment. */
  desired: z.int().min(0),
  ready: z.int().min(0),
  /** All pods, including starting and terminating ones. */
  pods: z.int().min(0),
  /** Metric reported by the autoscaler. */
  metric: z.string().optional(),
});
export type ReplicaPoint = z.infer<typeof replicaPoint>;

/** Commit and machine from which the drill ran. */
const measuredBy = {
  commit: z.string().optional(),
  /** Whether the working tree differed from the commit. */
  dirty: z.boolean().optional(),
  machine: machineSubject,
};

/** Deployment on a cluster. */
const clusterSubject = z.strictObject({
  /** Name of the environment; absent if the cluster was selected by options. */
  environment: z.string().optional(),
  cluster: z.strictObject({
    context: z.string(),
    version: z.string(),
    nodes: z.array(
      z.strictObject({
        name: z.string(),
        kubelet: z.string(),
        os: z.string(),
        cpu: z.string(),
        memory: z.string(),
      }),
    ),
  }),
  namespace: z.string(),
  deployment: z.string(),
  /** Image name in the Deployment. */
  image: z.string(),
  /** Image id reported by the container runtime of a pod. */
  imageId: z.string(),
});
export type ClusterSubject = z.infer<typeof clusterSubject>;

const hostSubject = z.strictObject({
  environment: z.string(),
  /** Docker endpoint of the host. */
  host: z.string(),
  /** Version of the Docker engine. */
  engine: z.string(),
  /** Service of the environment that was disturbed. */
  service: z.string(),
  containers: z.array(z.strictObject({ name: z.string(), imageId: z.string() })),
});
export type HostSubject = z.infer<typeof hostSubject>;

export const drillRecord = z.strictObject({
  schema: z.literal(drillRecordSchemaVersion),
  kind: z.literal("drill"),
  drill: z.enum([...clusterDrillNames, ...hostDrillNames, canaryName]),
  /** UTC, ISO 8601. */
  startedAt: z.iso.datetime(),
  finishedAt: z.iso.datetime(),
  /** Deployment under test. */
  subject: z.union([
    z.strictObject({ ...measuredBy, ...clusterSubject.shape }),
    z.strictObject({ ...measuredBy, ...hostSubject.shape }),
  ]),
  /** Absent if the drill sends no requests. */
  load: z
    .strictObject({
      kind: z.enum(["fixed rate", "closed loop"]),
      /** Requests per second at a fixed rate. */
      ratePerSecond: z.number().optional(),
      /** Clients of a closed loop: each sends its next request after the previous response. */
      concurrency: z.int().optional(),
      imagesPerRequest: z.literal(1),
      /** A new connection for each request, so that the Service selects a pod for each. */
      connections: z.literal("one per request"),
      url: z.string(),
      phases: z.array(phaseLoad),
    })
    .optional(),
  replicas: z.array(replicaPoint),
  /** Actions and observations, in order. */
  steps: z.array(z.strictObject({ atSeconds: z.number().min(0), text: z.string() })),
  /** Requests that the API server rejected. */
  rejections: z.array(
    z.strictObject({
      request: z.string(),
      status: z.int(),
      reason: z.string(),
      message: z.string(),
    }),
  ),
  checks: z.array(drillCheck),
  /** Whether every check passed. */
  passed: z.boolean(),
});
export type DrillRecord = z.infer<typeof drillRecord>;

export const drillRecordKind: RecordKind<DrillRecord> = {
  kind: "drill",
  version: drillRecordSchemaVersion,
  schema: drillRecord,
};

/** Parses a saved record. */
export function parseDrillRecord(text: string, displayPath: string): DrillRecord {
  return parseRecordAs(drillRecordKind, text, displayPath);
}
