import { setTimeout as sleep } from "node:timers/promises";
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

/** Waiting for the pods of a Deployment. It only reads. */

/** A Deployment, and the pods of its newest template. */
export interface RolloutState {
  readonly deployment: ClusterDeployment;
  /** Why pods of the newest template are refused, and since when. What the Deployment says may be about old ones. */
  readonly refused?: { readonly message: string; readonly since?: string };
  readonly pods: readonly ClusterPod[];
  /** How long the pods that go, or are old, may take to stop: the longest of them, 0 without any. */
  readonly graceSeconds: number;
  /** Of the pods whose image did not come, the names of those that pull it again now. */
  readonly pulling: ReadonlySet<string>;
}

/** Objects of one namespace that the wait reads. */
export interface RolloutReader {
  readonly api: Pick<ClusterApi, "get" | "list" | "text">;
  readonly namespace: string;
}

/** Nothing where there is no such Deployment. */
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
  const refused = conditionOf(newest?.status?.conditions, "ReplicaFailure", "True");
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
    ...(refused !== undefined && {
      refused: { message: refused.message ?? "", since: refused.lastTransitionTime },
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

/** `ready`, `waiting`, or why the pods will not become ready, and which pod says so. */
export type RolloutVerdict =
  | "ready"
  | "waiting"
  | { readonly failed: string; readonly pod?: string; readonly container?: string };

/** A container that was restarted this often does not start by waiting longer. */
const restartLimit = 3;

/** What may pass by itself, such as a pull that is tried again, is waited for so long. */
const patienceMs = 30_000;

/**
 * A quota gives back what a pod holds when the pod is gone, up to its grace later; and the ReplicaSet tries again after
 * twice the time that it has waited so far.
 */
function refusalPatienceMs(message: string, graceSeconds: number): number {
  return patienceMs + (/exceeded quota/.test(message) ? 2 * graceSeconds * 1_000 : 0);
}

/**
 * Judges one rollout, look after look. It remembers since when it has seen what may pass by itself: the times that the
 * cluster gives are of other clocks, and of other things.
 *
 * @param replicas - The fewest pods that must be ready.
 * @returns Takes the state and the time of a monotonic clock, in milliseconds.
 */
export function rolloutJudge(
  replicas: number,
): (state: RolloutState, nowMs: number) => RolloutVerdict {
  let firstSeen = new Map<string, number>();
  let graceSeconds = 0;
  return (state, nowMs) => {
    const seen = new Map<string, number>();
    const ageMs = (trouble: string) => {
      const first = firstSeen.get(trouble) ?? nowMs;
      seen.set(trouble, first);
      return nowMs - first;
    };
    // the ReplicaSet may still wait when the pod is gone
    graceSeconds = Math.max(graceSeconds, state.graceSeconds);
    const verdict = judgeRollout({ ...state, graceSeconds }, replicas, ageMs);
    firstSeen = seen; // what has passed is forgotten
    return verdict;
  };
}

/** For how long, in milliseconds, a trouble has been seen at each look; 0 at the first. */
type AgeMs = (trouble: string) => number;

function judgeRollout(
  { deployment, refused, pods, graceSeconds, pulling }: RolloutState,
  replicas: number,
  ageMs: AgeMs,
): RolloutVerdict {
  const { observed, all, updated, available } = countsOf(deployment);
  const seen = observed >= (deployment.metadata.generation ?? 0);
  const done = updated >= deployment.spec.replicas && all === updated && available >= updated;
  if (seen && done && available >= replicas) return "ready";
  if (!seen) return "waiting";
  const [trouble] = pods.flatMap((it) => podTrouble(it, pulling, ageMs) ?? []);
  if (trouble !== undefined) return trouble;
  if (
    refused !== undefined &&
    ageMs(`refused since ${refused.since}`) >= refusalPatienceMs(refused.message, graceSeconds)
  ) {
    return { failed: `a pod was refused: ${refused.message}` };
  }
  const late = deployment.status?.conditions?.some(
    ({ reason }) => reason === "ProgressDeadlineExceeded",
  );
  return late ? stuck(pods) : "waiting";
}

/** Counts of pods; the API server leaves out those that are 0. */
function countsOf({ status }: ClusterDeployment) {
  return {
    observed: status?.observedGeneration ?? 0,
    all: status?.replicas ?? 0,
    updated: status?.updatedReplicas ?? 0,
    available: status?.availableReplicas ?? 0,
  };
}

/** What is said of pods that are late without a reason of their own. */
export function stuck(pods: readonly ClusterPod[]): Exclude<RolloutVerdict, string> {
  const it = pods.find((pod) => !isReady(pod));
  if (it === undefined) return { failed: "there are fewer pods than asked for" };
  const { name } = it.metadata;
  const unscheduled = conditionOf(it.status?.conditions, "PodScheduled", "False");
  if (unscheduled !== undefined) {
    return { failed: `no node has room for a pod: ${unscheduled.message}`, pod: name };
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

function podTrouble(
  it: ClusterPod,
  pulling: ReadonlySet<string>,
  ageMs: AgeMs,
): Exclude<RolloutVerdict, string> | undefined {
  const pod = it.metadata.name;
  for (const container of statusesOf(it)) {
    const { name, image, state, lastState, restartCount, ready } = container;
    const said = (text: string) => ({
      failed: `container ${name} ${text}`,
      pod,
      container: name,
    });
    const lasts = (trouble: string) => ageMs(`${pod} ${name} ${trouble}`) >= patienceMs;
    const { reason = "", message = "" } = state?.waiting ?? {};
    if (reason === "ErrImageNeverPull" || reason === "InvalidImageName") {
      return said(`has no image: ${message}`);
    }
    if (pullFailed(container) && lasts("image") && !pulling.has(pod)) {
      return said(
        `cannot get its image ${image}, which is not on the node: ${message.replace(/\s+/g, " ")}`,
      );
    }
    if (/^Create(Container|PodSandbox).*Error$|^RunContainerError$/.test(reason) && lasts(reason)) {
      return said(`cannot be started: ${message}`);
    }
    if (restartCount >= restartLimit && !ready) {
      const last = state?.terminated ?? lastState?.terminated;
      return said(`restarts in a loop (${restartCount} times)${endText(last)}`);
    }
  }
  return undefined;
}

function endText(last: Wire<V1ContainerStateTerminated> | undefined): string {
  if (last === undefined) return "";
  return last.reason === "OOMKilled"
    ? ": it was ended for lack of memory"
    : `: it exited with code ${last.exitCode}`;
}

/** Also while it is pulled again: the reason stays until the container starts. */
function pullFailed({ state }: ContainerStatus): boolean {
  return state?.waiting?.reason === "ImagePullBackOff" || state?.waiting?.reason === "ErrImagePull";
}

/** `2 of 2 pods are new, 1 is ready`: what changes while one waits. */
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

export interface RolloutWait {
  readonly reader: RolloutReader;
  readonly deployment: string;
  /** The fewest pods that must be ready. */
  readonly replicas: number;
  readonly timeoutMs: number;
  /** Between two looks. */
  readonly intervalMs: number;
  readonly signal?: AbortSignal;
  /** The state, each time that it changes, and how long it took. */
  readonly onState: (text: string, elapsedMs: number) => void;
}

/**
 * Wait until the pods of a Deployment's newest template are ready, and no others are left.
 *
 * @returns Why they are not, or nothing.
 */
export async function waitForRollout(
  options: RolloutWait,
): Promise<Exclude<RolloutVerdict, string> | undefined> {
  const { reader, deployment: name, replicas, timeoutMs, intervalMs, signal, onState } = options;
  const startMs = performance.now();
  const judge = rolloutJudge(replicas);
  let told = "";
  while (true) {
    const state = await readRollout(reader, name);
    signal?.throwIfAborted();
    if (state === undefined) return { failed: "is not there" };
    const elapsedMs = performance.now() - startMs;
    const text = rolloutText(state);
    if (text !== told) onState(text, elapsedMs);
    told = text;
    const verdict = judge(state, performance.now());
    if (verdict === "ready") return undefined;
    if (verdict !== "waiting") return verdict;
    if (elapsedMs >= timeoutMs) {
      const why = stuck(state.pods);
      return { ...why, failed: `after ${Math.round(timeoutMs / 1000)} s ${why.failed} (${text})` };
    }
    await sleep(Math.min(intervalMs, Math.max(0, timeoutMs - elapsedMs)), undefined, { signal });
  }
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

/** Of the pods whose image did not come, those that pull it again: only their events say so. */
async function pullingAgain(
  reader: RolloutReader,
  pods: readonly ClusterPod[],
): Promise<ReadonlySet<string>> {
  const failed = pods
    .filter((pod) => statusesOf(pod).some(pullFailed))
    .map(({ metadata }) => metadata.name);
  const pulling = await Promise.all(
    failed.map(async (name) => {
      // without the events, what the state says counts
      const events = await eventsOf(reader, `involvedObject.name=${name}`).catch(() => []);
      const lastOf = (is: (it: ClusterEvent) => boolean) => {
        const last = events.findLast(is);
        return last === undefined ? "" : timeOf(last);
      };
      const started = lastOf(({ reason }) => reason === "Pulling");
      return started > lastOf(({ reason }) => reason === "Failed") ? name : [];
    }),
  );
  return new Set(pulling.flat());
}

/** What the cluster warned of about an object, the oldest first, each message once. */
export async function warningsOf(reader: RolloutReader, name: string): Promise<readonly string[]> {
  const events = await eventsOf(reader, `involvedObject.name=${name},type=Warning`);
  const lines = events.map(
    ({ reason, message = "" }) => `${reason}: ${message.trim().replace(/\s+/g, " ")}`,
  );
  return [...new Set(lines)];
}

/** The last lines that a container wrote; of one that was restarted, those before its end. */
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
