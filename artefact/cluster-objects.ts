import type {
  V1Deployment,
  V1LimitRange,
  V1Node,
  V1ObjectMeta,
  V1Pod,
  V1PodDisruptionBudget,
  V1ReplicaSet,
  V1ResourceQuota,
  V1Service,
  V2HorizontalPodAutoscaler,
} from "@kubernetes/client-node";
import type { DeclaredObject } from "./terraform-manifests.ts";

/** Kubernetes objects as the API server returns them, and functions that read their state. */

/** JSON of an object, in which times are strings. */
export type Wire<T> = T extends Date
  ? string
  : T extends readonly (infer Item)[]
    ? readonly Wire<Item>[]
    : T extends object
      ? { readonly [Key in keyof T]: Wire<T[Key]> }
      : T;

/** Fields that the API server fills in. */
type Filled<T, Key extends keyof T> = T & { readonly [K in Key]-?: NonNullable<T[K]> };

/** An object that is stored in the cluster. */
export type Stored<T extends { metadata?: V1ObjectMeta; spec?: unknown }> = Filled<
  Wire<T>,
  "spec"
> & { readonly metadata: Filled<Wire<V1ObjectMeta>, "name" | "uid"> };

export type ClusterDeployment = Stored<V1Deployment> & {
  readonly spec: Filled<
    Wire<NonNullable<V1Deployment["spec"]>>,
    "replicas" | "revisionHistoryLimit" | "progressDeadlineSeconds"
  >;
};
/** Revision of a Deployment. */
export type ClusterReplicaSet = Stored<V1ReplicaSet>;
export type ClusterPod = Stored<V1Pod>;
export type ClusterAutoscaler = Stored<V2HorizontalPodAutoscaler>;
export type ClusterDisruptionBudget = Stored<V1PodDisruptionBudget>;
export type ClusterQuota = Stored<V1ResourceQuota>;
export type ClusterLimitRange = Stored<V1LimitRange>;
export type ClusterService = Stored<V1Service>;
export type ClusterNode = Stored<V1Node>;

/** Default of Kubernetes, in seconds. */
const scaleDownWindowSeconds = 300;

/** Time of low load after which an autoscaler removes pods, in seconds. */
export function scaleDownWindow({ spec }: ClusterAutoscaler): number {
  return spec.behavior?.scaleDown?.stabilizationWindowSeconds ?? scaleDownWindowSeconds;
}

/** Returns whether a pod receives requests: it is ready and not terminating. */
export function isReady({ metadata, status }: ClusterPod): boolean {
  const ready = status?.conditions?.some(
    ({ type, status: is }) => type === "Ready" && is === "True",
  );
  return ready === true && metadata.deletionTimestamp === undefined;
}

/** Returns whether a pod was evicted or has ended, and is replaced by another one. */
export function isTerminated({ status }: ClusterPod): boolean {
  return status?.phase === "Failed" || status?.phase === "Succeeded";
}

/** Returns whether a selector matches labels; an empty selector matches nothing. Match expressions are assumed to match. */
export function selects(
  selector: Readonly<Record<string, unknown>> = {},
  labels: Readonly<Record<string, unknown>> = {},
): boolean {
  const required = Object.entries(selector);
  return required.length > 0 && required.every(([key, value]) => labels[key] === value);
}

/** Reason why a rollout is not complete; `undefined` if every pod is of the current revision and ready, and no other is left. */
export function rolloutProblem(
  { metadata, spec, status = {} }: ClusterDeployment,
  pods: readonly ClusterPod[],
): string | undefined {
  const { observedGeneration = 0, updatedReplicas = 0, availableReplicas = 0 } = status;
  if (observedGeneration < (metadata.generation ?? 0)) {
    return "its latest change has not been observed yet";
  }
  if (updatedReplicas < spec.replicas) {
    return `${updatedReplicas} of ${spec.replicas} pods are of the latest revision`;
  }
  const ready = pods.filter(isReady).length;
  if (ready < spec.replicas) return `${ready} of ${spec.replicas} pods are ready`;
  if (availableReplicas < spec.replicas) {
    return `${availableReplicas} of ${spec.replicas} pods are available`;
  }
  const leaving = pods.length - spec.replicas;
  return leaving > 0 ? `${leaving} ${leaving === 1 ? "pod" : "pods"} too many` : undefined;
}

/** Reason why a pod does not run, as reported by the kubelet or the scheduler. */
export function podProblem({ status }: ClusterPod): string | undefined {
  for (const { name, state } of status?.containerStatuses ?? []) {
    const { reason = "", message } = state?.waiting ?? {};
    if (!["", "ContainerCreating", "PodInitializing"].includes(reason)) {
      return `${name}: ${reason}${message ? `: ${message}` : ""}`;
    }
  }
  const unscheduled = status?.conditions?.find(
    ({ type, status: is }) => type === "PodScheduled" && is === "False",
  );
  return unscheduled && `${unscheduled.reason}: ${unscheduled.message}`;
}

/** Current metric of an autoscaler, such as CPU in percent of the pods' requests; `undefined` while it has none. */
export function describeMetric({ status }: ClusterAutoscaler): string | undefined {
  // `null` right after a deployment
  for (const { resource, external } of status?.currentMetrics ?? []) {
    const percent = resource?.current.averageUtilization;
    if (percent !== undefined) return `${resource?.name} ${percent} %`;
    const value = external?.current.value ?? external?.current.averageValue;
    if (external !== undefined && value !== undefined) return `${external.metric.name} ${value}`;
  }
  return undefined;
}

/** Declared objects as found in a cluster, or the reason why the cluster is unavailable. */
export type ClusterInspection =
  | {
      readonly ok: true;
      /** Object as the API server returns it; absent if it does not exist. */
      readonly found: ReadonlyMap<DeclaredObject, unknown>;
      /** Pods by Deployment name. */
      readonly pods: ReadonlyMap<string, readonly ClusterPod[]>;
    }
  | { readonly ok: false; readonly message: string };
