import type {
  CoreV1Event,
  V1Condition,
  V1ContainerStateTerminated,
  V1ContainerStatus,
} from "@kubernetes/client-node";
import {
  type ClusterDeployment,
  type ClusterPod,
  type ClusterReplicaSet,
  isReady,
  type Wire,
} from "../../artefact/cluster-objects.ts";
import { templateHashLabel } from "../../contract/pods.ts";
import { type ClusterApi, namespacedPath, selectedBy } from "../../verify/cluster/cluster-api.ts";
import { type WaitOptions, waitForState } from "../shared/wait-for-state.ts";

/** Deployment and the pods of its newest template. */
export interface RolloutState {
  readonly deployment: ClusterDeployment;
  /**
   * Rejection of pods of the newest template, from its ReplicaSet, because the condition of the Deployment may concern old pods.
   */
  readonly rejection?: { readonly message: string; readonly since?: string };
  readonly pods: readonly ClusterPod[];
  /** Longest grace period of terminating and old pods, in seconds; 0 without any. */
  readonly graceSeconds: number;
  /** Names of the pods that retry a failed image pull now. */
  readonly pulling: ReadonlySet<string>;
}

/** Access to the objects of one namespace. */
export interface RolloutReader {
  readonly api: Pick<ClusterApi, "get" | "list" | "text">;
  readonly namespace: string;
}

/** Reads the state of a rollout; undefined if the Deployment does not exist. */
export async function readRollout(
  reader: RolloutReader,
  name: string,
): Promise<RolloutState | undefined> {
  const { api, namespace } = reader;
  const path = (group: string, plural: string, object?: string) =>
    namespacedPath(namespace, group, plural, object);
  const deployment = await api.get<ClusterDeployment>(path("apps/v1", "deployments", name));
  if (deployment === undefined) return undefined;
  const selected = selectedBy(deployment.spec.selector.matchLabels);
  const [sets, all] = await Promise.all([
    api.list<ClusterReplicaSet>(`${path("apps/v1", "replicasets")}${selected}`),
    api.list<ClusterPod>(`${path("v1", "pods")}${selected}`),
  ]);
  const revision = deployment.metadata.annotations?.[revisionAnnotation];
  const newest = sets.find(
    ({ metadata }) => metadata.annotations?.[revisionAnnotation] === revision,
  );
  const hash = newest?.metadata.labels?.[templateHashLabel];
  const rejection = conditionOf(newest?.status?.conditions, "ReplicaFailure", "True");
  const isNew = ({ metadata }: ClusterPod) =>
    metadata.deletionTimestamp === undefined && metadata.labels?.[templateHashLabel] === hash;
  const pods = all
    .filter(isNew)
    .sort((a, b) =>
      (a.metadata.creationTimestamp ?? "").localeCompare(b.metadata.creationTimestamp ?? ""),
    );
  const graces = all
    .filter((it) => !isNew(it))
    .map(({ spec }) => spec.terminationGracePeriodSeconds ?? 30);
  return {
    deployment,
    ...(rejection !== undefined && {
      rejection: { message: rejection.message ?? "", since: rejection.lastTransitionTime },
    }),
    pods,
    graceSeconds: Math.max(0, ...graces),
    pulling: await pullingAgain(reader, pods),
  };
}

type Condition = Pick<Wire<V1Condition>, "type" | "status"> & {
  readonly message?: string;
  readonly lastTransitionTime?: string;
};

function conditionOf(all: readonly Condition[] | undefined, type: string, status: string) {
  return all?.find((it) => it.type === type && it.status === status);
}

const revisionAnnotation = "deployment.kubernetes.io/revision";

/** Reason why the pods will not become ready, and the pod that caused it. */
export interface RolloutFailure {
  readonly failed: string;
  readonly pod?: string;
  readonly container?: string;
}

export type RolloutVerdict = "ready" | "waiting" | RolloutFailure;

/** Number of restarts after which a container counts as restarting in a loop. */
const restartLimit = 3;

/** Time that a transient failure, such as a retried image pull, may last. */
const transientMs = 30_000;

/**
 * Time that a rejection may last. A pod uses its quota until it has terminated, up to its grace period, and the ReplicaSet retries
 * with exponential backoff, after up to twice the time so far.
 */
function rejectionLimitMs(message: string, graceSeconds: number): number {
  return transientMs + (/exceeded quota/.test(message) ? 2 * graceSeconds * 1_000 : 0);
}

/**
 * Returns a judge of one rollout, to be called with each state. It measures the age of transient failures itself, because
 * timestamps of the cluster come from other clocks and other events.
 *
 * @param replicas - Minimum number of ready pods.
 * @returns Function of the state and the time of a monotonic clock in milliseconds.
 */
export function rolloutJudge(
  replicas: number,
): (state: RolloutState, nowMs: number) => RolloutVerdict {
  let firstSeenMs = new Map<string, number>();
  let graceSeconds = 0;
  return (state, nowMs) => {
    const seenMs = new Map<string, number>();
    const ageMs = (failure: string) => {
      const first = firstSeenMs.get(failure) ?? nowMs;
      seenMs.set(failure, first);
      return nowMs - first;
    };
    // the backoff of the ReplicaSet may last longer than the terminated pod
    graceSeconds = Math.max(graceSeconds, state.graceSeconds);
    const verdict = judgeRollout({ ...state, graceSeconds }, replicas, ageMs);
    firstSeenMs = seenMs; // drops resolved failures
    return verdict;
  };
}

/** Time in milliseconds since a failure was first seen without interruption. */
type AgeMs = (failure: string) => number;

function judgeRollout(
  { deployment, rejection, pods, graceSeconds, pulling }: RolloutState,
  replicas: number,
  ageMs: AgeMs,
): RolloutVerdict {
  const { observed, all, updated, available } = countsOf(deployment);
  if (observed < (deployment.metadata.generation ?? 0)) return "waiting";
  const done = updated >= deployment.spec.replicas && all === updated && available >= updated;
  if (done && available >= replicas) return "ready";
  const [failure] = pods.flatMap((it) => podFailure(it, pulling, ageMs) ?? []);
  if (failure !== undefined) return failure;
  if (
    rejection !== undefined &&
    ageMs(`rejected since ${rejection.since}`) >= rejectionLimitMs(rejection.message, graceSeconds)
  ) {
    return { failed: `a pod was rejected: ${rejection.message}` };
  }
  const late = deployment.status?.conditions?.some(
    ({ reason }) => reason === "ProgressDeadlineExceeded",
  );
  return late ? pendingFailure(pods) : "waiting";
}

/** Pod counts of the status; the API server omits zeros. */
function countsOf({ status }: ClusterDeployment) {
  return {
    observed: status?.observedGeneration ?? 0,
    all: status?.replicas ?? 0,
    updated: status?.updatedReplicas ?? 0,
    available: status?.availableReplicas ?? 0,
  };
}

/** Failure of pods that are late without a failure of their own. */
export function pendingFailure(pods: readonly ClusterPod[]): RolloutFailure {
  const it = pods.find((pod) => !isReady(pod));
  if (it === undefined) return { failed: "fewer pods exist than spec.replicas" };
  const { name } = it.metadata;
  const unscheduled = conditionOf(it.status?.conditions, "PodScheduled", "False");
  if (unscheduled !== undefined) {
    return { failed: `no node has capacity for a pod: ${unscheduled.message}`, pod: name };
  }
  const late = it.status?.containerStatuses?.find(({ ready }) => !ready);
  const state = (it.status?.phase ?? "").toLowerCase();
  return late === undefined
    ? { failed: `a pod is ${state} and not ready`, pod: name }
    : {
        failed: `container ${late.name} is ${late.state?.running === undefined ? state : "running and not ready"}`,
        pod: name,
        container: late.name,
      };
}

type ContainerStatus = Wire<V1ContainerStatus>;

function statusesOf({ status }: ClusterPod): readonly ContainerStatus[] {
  return [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
}

function podFailure(
  it: ClusterPod,
  pulling: ReadonlySet<string>,
  ageMs: AgeMs,
): RolloutFailure | undefined {
  const pod = it.metadata.name;
  for (const container of statusesOf(it)) {
    const { name, image, state, lastState, restartCount, ready } = container;
    const failure = (text: string): RolloutFailure => ({
      failed: `container ${name} ${text}`,
      pod,
      container: name,
    });
    const persists = (cause: string) => ageMs(`${pod} ${name} ${cause}`) >= transientMs;
    const { reason = "", message = "" } = state?.waiting ?? {};
    if (reason === "ErrImageNeverPull" || reason === "InvalidImageName") {
      return failure(`has no image: ${message}`);
    }
    if (pullFailed(container) && persists("image") && !pulling.has(pod)) {
      return failure(`cannot pull its image ${image}: ${message.replace(/\s+/g, " ")}`);
    }
    if (
      /^Create(Container|PodSandbox).*Error$|^RunContainerError$/.test(reason) &&
      persists(reason)
    ) {
      return failure(`cannot be started: ${message}`);
    }
    if (restartCount >= restartLimit && !ready) {
      const last = state?.terminated ?? lastState?.terminated;
      return failure(`restarts in a loop (${restartCount} times)${endText(last)}`);
    }
  }
  return undefined;
}

function endText(last: Wire<V1ContainerStateTerminated> | undefined): string {
  if (last === undefined) return "";
  return last.reason === "OOMKilled"
    ? ": it was killed because it ran out of memory"
    : `: it exited with code ${last.exitCode}`;
}

/** Returns whether an image pull failed; the status keeps the reason during a retry. */
function pullFailed({ state }: ContainerStatus): boolean {
  return state?.waiting?.reason === "ImagePullBackOff" || state?.waiting?.reason === "ErrImagePull";
}

/** State as text: `2 of 2 pods are new, 1 ready`. */
export function rolloutText({ deployment, pods }: RolloutState): string {
  const waiting = pods.flatMap((pod) =>
    (pod.status?.containerStatuses ?? []).flatMap(({ state }) => state?.waiting?.reason ?? []),
  );
  const { all, updated, available } = countsOf(deployment);
  const parts = [`${updated} of ${deployment.spec.replicas} pods are new`, `${available} ready`];
  if (all > updated) parts.push(`${all - updated} old`);
  const reasons = [...new Set(waiting)].filter((reason) => reason !== "ContainerCreating");
  return [...parts, ...reasons].join(", ");
}

export interface RolloutWait extends WaitOptions {
  readonly reader: RolloutReader;
  readonly deployment: string;
  /** Minimum number of ready pods. */
  readonly replicas: number;
}

/**
 * Waits until the pods of a Deployment's newest template are ready, and no others are left.
 *
 * @returns The failure, or undefined once the pods are ready.
 */
export function waitForRollout(wait: RolloutWait): Promise<RolloutFailure | undefined> {
  const { reader, deployment, replicas, timeoutMs } = wait;
  return waitForState<RolloutState, RolloutFailure>(
    {
      read: () => readRollout(reader, deployment),
      text: rolloutText,
      judge: rolloutJudge(replicas),
      missing: { failed: "the Deployment does not exist" },
      timedOut(state, text) {
        const failure = pendingFailure(state === "unreachable" ? [] : state.pods);
        const seconds = Math.round(timeoutMs / 1000);
        return { ...failure, failed: `after ${seconds} s ${failure.failed} (${text})` };
      },
    },
    wait,
  );
}

type ClusterEvent = Wire<CoreV1Event>;

async function eventsOf(
  { api, namespace }: RolloutReader,
  selector: string,
): Promise<readonly ClusterEvent[]> {
  const path = namespacedPath(namespace, "v1", "events");
  const events = await api.list<ClusterEvent>(
    `${path}?fieldSelector=${encodeURIComponent(selector)}`,
  );
  return [...events].sort((a, b) => timeOf(a).localeCompare(timeOf(b)));
}

function timeOf({ lastTimestamp, eventTime, metadata }: ClusterEvent): string {
  return lastTimestamp ?? eventTime ?? metadata.creationTimestamp ?? "";
}

/** Returns the names of the pods that retry a failed image pull, which only their events show. */
async function pullingAgain(
  reader: RolloutReader,
  pods: readonly ClusterPod[],
): Promise<ReadonlySet<string>> {
  const failed = pods
    .filter((pod) => statusesOf(pod).some(pullFailed))
    .map(({ metadata }) => metadata.name);
  const pulling = await Promise.all(
    failed.map(async (name) => {
      // without events the state of the pod decides
      const events = await eventsOf(reader, `involvedObject.name=${name}`).catch(() => []);
      const lastOf = (matches: (it: ClusterEvent) => boolean) => {
        const last = events.findLast(matches);
        return last === undefined ? "" : timeOf(last);
      };
      const started = lastOf(({ reason }) => reason === "Pulling");
      return started > lastOf(({ reason }) => reason === "Failed") ? name : [];
    }),
  );
  return new Set(pulling.flat());
}

/** Warning events of an object, oldest first, without duplicates. */
export async function warningsOf(reader: RolloutReader, name: string): Promise<readonly string[]> {
  const events = await eventsOf(reader, `involvedObject.name=${name},type=Warning`);
  const lines = events.map(
    ({ reason, message = "" }) => `${reason}: ${message.trim().replace(/\s+/g, " ")}`,
  );
  return [...new Set(lines)];
}

/** Returns the last log lines of a container, or of its previous run if the current run has none. */
export async function lastPodLines(
  { api, namespace }: RolloutReader,
  { pod, container }: { readonly pod: string; readonly container?: string },
  count: number,
): Promise<readonly string[]> {
  const read = async (previous: boolean) => {
    const query = new URLSearchParams({
      tailLines: String(count),
      previous: String(previous),
      ...(container !== undefined && { container }),
    });
    const path = `${namespacedPath(namespace, "v1", "pods", pod)}/log?${query}`;
    const text = await api.text(path).catch(() => "");
    return text.split("\n").filter((line) => line.trim() !== "");
  };
  const now = await read(false);
  return now.length > 0 ? now : read(true);
}
