import { z } from "zod";
import { machineSubject } from "../../bench/record/record.ts";

/**
 * One run of an exercise on a cluster, as it is saved. What a person reads is computed from it (`k8s-report.ts`).
 * `verify/drills/k8s-record.schema.json` is the same as JSON Schema (`npm run render`).
 */

/** Bumped when a field changes meaning, so that old records are refused and not misread. */
export const drillRecordSchemaVersion = 1;

export const drillNames = ["rollout", "scale", "drain", "quota"] as const;
export type DrillName = (typeof drillNames)[number];

/** What each exercise asks, in words for the report and the help. */
export const drillQuestions: Readonly<Record<DrillName, string>> = {
  rollout:
    "Are all requests answered while pods are replaced, and does a bad image stop a rollout?",
  scale: "Does the autoscaler add pods under load, and take them away afterwards?",
  drain: "Does the disruption budget allow one eviction and refuse the next, with no request lost?",
  quota: "Does the API server refuse pods that the quota has no room for?",
};

const latency = z.strictObject({
  /** Requests answered well; only they are in the percentiles. */
  samples: z.int().min(0),
  p50: z.number(),
  p95: z.number(),
  p99: z.number(),
  max: z.number(),
  /** False below the minimum number of samples: such a p99 is one or two requests. */
  p99Reliable: z.boolean(),
});

export const phaseLoad = z.strictObject({
  /** Part of the exercise in which the requests were due. */
  phase: z.string(),
  seconds: z.number().min(0),
  requests: z.int().min(0),
  failed: z.int().min(0),
  /** Failed requests by code. */
  errors: z.record(z.string(), z.int().min(1)),
  latencyMs: latency.optional(),
});
export type PhaseLoad = z.infer<typeof phaseLoad>;

export const drillCheck = z.strictObject({
  /** What must be, as a sentence. */
  claim: z.string(),
  passed: z.boolean(),
  /** What was seen. */
  message: z.string(),
});
export type DrillCheck = z.infer<typeof drillCheck>;

/** How many pods there were, whenever that changed. */
export const replicaPoint = z.strictObject({
  atSeconds: z.number().min(0),
  /** Asked of the Deployment. */
  wanted: z.int().min(0),
  ready: z.int().min(0),
  /** All that are there, those on their way in or out as well. */
  pods: z.int().min(0),
  /** What the autoscaler saw. */
  metric: z.string().optional(),
});
export type ReplicaPoint = z.infer<typeof replicaPoint>;

export const drillRecord = z.strictObject({
  schema: z.literal(drillRecordSchemaVersion),
  kind: z.literal("k8s"),
  exercise: z.enum(drillNames),
  /** UTC, ISO 8601. */
  startedAt: z.iso.datetime(),
  finishedAt: z.iso.datetime(),
  /** What it was done to: without it the numbers mean nothing. */
  subject: z.strictObject({
    commit: z.string().optional(),
    /** Files differed from the commit. */
    dirty: z.boolean().optional(),
    machine: machineSubject,
    /** Name of the environment; absent where the cluster was named by hand. */
    environment: z.string().optional(),
    cluster: z.strictObject({
      context: z.string(),
      /** Of the API server. */
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
    /** As the Deployment names it. */
    image: z.string(),
    /** What the container runtime of a pod says that it runs. */
    imageId: z.string(),
  }),
  /** How requests were sent; absent where none were. */
  load: z
    .strictObject({
      kind: z.enum(["fixed rate", "closed loop"]),
      /** Requests a second of a fixed rate. */
      ratePerSecond: z.number().optional(),
      /** Clients of a closed loop: each sends its next request when the last one was answered. */
      concurrency: z.int().optional(),
      imagesPerRequest: z.literal(1),
      /** Each request has a connection of its own, so that the Service chooses a pod for each. */
      connections: z.literal("one for each request"),
      url: z.string(),
      phases: z.array(phaseLoad),
    })
    .optional(),
  replicas: z.array(replicaPoint),
  /** What was done and seen, in order. */
  steps: z.array(z.strictObject({ atSeconds: z.number().min(0), text: z.string() })),
  /** What the API server said when it refused. */
  refusals: z.array(
    z.strictObject({
      asked: z.string(),
      status: z.int(),
      reason: z.string(),
      message: z.string(),
    }),
  ),
  checks: z.array(drillCheck),
  /** Every check passed. */
  passed: z.boolean(),
});
export type DrillRecord = z.infer<typeof drillRecord>;

/** `verify/drills/k8s-record.schema.json`, whole. */
export function renderDrillRecordSchema(): string {
  const schema = z.toJSONSchema(drillRecord, { target: "draft-2020-12" });
  return `${JSON.stringify({ title: "clipstack k8s record", ...schema }, null, 2)}\n`;
}
