import { z } from "zod";

/** The parts of Kubernetes' objects that are read here. Others are let go. */

const text = z.string();
const count = z.number().default(0);
const quantities = z.record(text, text).default({});

const metadata = z.object({
  name: text,
  namespace: text.optional(),
  uid: text.default(""),
  generation: count,
  deletionTimestamp: text.optional(),
  labels: z.record(text, text).default({}),
  annotations: z.record(text, text).default({}),
});

const condition = z.object({
  type: text,
  status: text,
  reason: text.default(""),
  message: text.default(""),
  lastTransitionTime: text.optional(),
});

/** Which program set which fields last, as server-side apply asks. */
const managedFields = z.looseObject({ manager: text.default(""), subresource: text.optional() });

export const clusterDeployment = z.object({
  metadata: metadata.extend({ managedFields: z.array(managedFields).default([]) }),
  spec: z.looseObject({
    replicas: z.number().default(1),
    revisionHistoryLimit: z.number().default(10),
    selector: z.object({ matchLabels: z.record(text, text).default({}) }).loose(),
    progressDeadlineSeconds: z.number().default(600),
    template: z.looseObject({
      spec: z.looseObject({
        containers: z.array(z.looseObject({ name: text, image: text })).min(1),
      }),
    }),
  }),
  status: z
    .object({
      observedGeneration: count,
      replicas: count,
      updatedReplicas: count,
      readyReplicas: count,
      availableReplicas: count,
      conditions: z.array(condition).default([]),
    })
    .prefault({}),
});
export type ClusterDeployment = z.infer<typeof clusterDeployment>;

/** One version of a Deployment. */
export const clusterReplicaSet = z.object({
  metadata: metadata.extend({
    ownerReferences: z.array(z.object({ uid: text })).default([]),
  }),
  spec: z.looseObject({ replicas: z.number().default(1) }),
  status: z.object({ replicas: count }).prefault({}),
});
export type ClusterReplicaSet = z.infer<typeof clusterReplicaSet>;

const containerState = z
  .object({
    waiting: z.object({ reason: text.default(""), message: text.default("") }).optional(),
    terminated: z.object({ reason: text.default(""), exitCode: count }).optional(),
  })
  .prefault({});

export const clusterPod = z.object({
  metadata,
  spec: z.looseObject({
    nodeName: text.optional(),
    containers: z.array(z.looseObject({ name: text, image: text })).default([]),
  }),
  status: z
    .object({
      phase: text.default(""),
      reason: text.default(""),
      conditions: z.array(condition).default([]),
      containerStatuses: z
        .array(
          z.object({
            name: text,
            image: text.default(""),
            imageID: text.default(""),
            ready: z.boolean().default(false),
            restartCount: count,
            state: containerState,
            lastState: containerState,
          }),
        )
        .default([]),
    })
    .prefault({}),
});
export type ClusterPod = z.infer<typeof clusterPod>;

export const clusterAutoscaler = z.object({
  metadata,
  spec: z.looseObject({
    minReplicas: z.number().default(1),
    maxReplicas: z.number(),
    scaleTargetRef: z.object({ kind: text, name: text }),
    behavior: z
      .object({
        scaleDown: z.object({ stabilizationWindowSeconds: z.number().default(300) }).prefault({}),
      })
      .loose()
      .prefault({}),
  }),
  status: z
    .object({
      currentReplicas: count,
      desiredReplicas: count,
      currentMetrics: z
        .array(
          z.looseObject({
            type: text.default(""),
            resource: z
              .object({
                name: text,
                current: z.object({ averageUtilization: z.number().optional() }).prefault({}),
              })
              .optional(),
            external: z
              .object({
                metric: z.object({ name: text }).loose(),
                current: z
                  .object({ value: text.optional(), averageValue: text.optional() })
                  .prefault({}),
              })
              .optional(),
          }),
        )
        .nullish()
        .transform((value) => value ?? []),
      conditions: z.array(condition).default([]),
    })
    .prefault({}),
});
export type ClusterAutoscaler = z.infer<typeof clusterAutoscaler>;

export const clusterBudget = z.object({
  metadata,
  spec: z.looseObject({
    selector: z.object({ matchLabels: z.record(text, text).default({}) }).prefault({}),
  }),
  status: z
    .object({
      disruptionsAllowed: count,
      currentHealthy: count,
      desiredHealthy: count,
      expectedPods: count,
    })
    .prefault({}),
});
export type ClusterBudget = z.infer<typeof clusterBudget>;

export const clusterQuota = z.object({
  metadata,
  spec: z.looseObject({ hard: quantities }).prefault({}),
  status: z.object({ hard: quantities, used: quantities }).prefault({}),
});
export type ClusterQuota = z.infer<typeof clusterQuota>;

export const clusterLimitRange = z.object({
  metadata,
  spec: z.object({
    limits: z.array(z.object({ type: text, max: quantities, min: quantities })).default([]),
  }),
});
export type ClusterLimitRange = z.infer<typeof clusterLimitRange>;

export const clusterService = z.object({
  metadata,
  spec: z.looseObject({
    type: text.default("ClusterIP"),
    selector: z.record(text, text).default({}),
    ports: z
      .array(z.object({ name: text.optional(), port: z.number(), nodePort: z.number().optional() }))
      .default([]),
  }),
});

export const clusterNode = z.object({
  metadata,
  status: z.object({
    capacity: quantities,
    allocatable: quantities,
    nodeInfo: z.object({ kubeletVersion: text, osImage: text.default("") }),
  }),
});

export const listOf = <T extends z.ZodType>(item: T) => z.object({ items: z.array(item) });

/** What the API server says when it refuses. */
export const apiStatus = z.object({
  code: z.number(),
  reason: text.default(""),
  message: text.default(""),
  details: z
    .object({ causes: z.array(z.object({ message: text.default("") })).default([]) })
    .loose()
    .prefault({}),
});

/** A pod that takes requests: ready, and not on its way out. */
export function isReady(pod: ClusterPod): boolean {
  const ready = pod.status.conditions.find(({ type }) => type === "Ready")?.status === "True";
  return ready && pod.metadata.deletionTimestamp === undefined;
}

/** A pod that was evicted or has ended: it only waits to be cleared away, and another one takes its place. */
export function isOver({ status: { phase } }: ClusterPod): boolean {
  return phase === "Failed" || phase === "Succeeded";
}

/** Pods that a selector asks for. */
export function selects(
  selector: Readonly<Record<string, string>>,
  labels: Readonly<Record<string, string>>,
): boolean {
  const wanted = Object.entries(selector);
  return wanted.length > 0 && wanted.every(([key, value]) => labels[key] === value);
}

/** Why a Deployment is not at rest; nothing when every pod is of its template and ready, and no other is left. */
export function unrest(
  { metadata: { generation }, spec, status }: ClusterDeployment,
  pods: readonly ClusterPod[],
): string | undefined {
  if (status.observedGeneration < generation) return "its last change has not been seen yet";
  if (status.updatedReplicas < spec.replicas) {
    return `${status.updatedReplicas} of ${spec.replicas} pods are of its last version`;
  }
  const ready = pods.filter(isReady).length;
  if (ready < spec.replicas) return `${ready} of ${spec.replicas} pods are ready`;
  if (status.availableReplicas < spec.replicas) {
    return `${status.availableReplicas} of ${spec.replicas} pods are available`;
  }
  const leaving = pods.length - spec.replicas;
  return leaving > 0 ? `${leaving} ${leaving === 1 ? "pod" : "pods"} too many` : undefined;
}

/** What keeps a pod from running, in the words of the kubelet or the scheduler. */
export function podTrouble(pod: ClusterPod): string | undefined {
  for (const { name, state } of pod.status.containerStatuses) {
    const { waiting } = state;
    if (
      waiting !== undefined &&
      !["", "ContainerCreating", "PodInitializing"].includes(waiting.reason)
    ) {
      return `${name}: ${waiting.reason}${waiting.message === "" ? "" : `: ${waiting.message}`}`;
    }
  }
  const unscheduled = pod.status.conditions.find(
    ({ type, status }) => type === "PodScheduled" && status === "False",
  );
  return unscheduled === undefined ? undefined : `${unscheduled.reason}: ${unscheduled.message}`;
}

/** CPU that an autoscaler sees, in percent of what the pods request; nothing while it has no metric. */
export function metricText(autoscaler: ClusterAutoscaler): string | undefined {
  for (const { resource, external } of autoscaler.status.currentMetrics) {
    const percent = resource?.current.averageUtilization;
    if (percent !== undefined) return `${resource?.name} ${percent} %`;
    const value = external?.current.value ?? external?.current.averageValue;
    if (external !== undefined && value !== undefined) return `${external.metric.name} ${value}`;
  }
  return undefined;
}

const suffixes: Readonly<Record<string, number>> = {
  "": 1,
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** A quantity as a number: `250m` is 0.25, `1Gi` is 1073741824. NaN for what is none. */
export function quantity(given: string): number {
  const match = /^([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)([a-zA-Z]*)$/.exec(given.trim());
  const factor = suffixes[match?.[2] ?? "?"];
  return match === null || factor === undefined ? Number.NaN : Number(match[1]) * factor;
}
