import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { templateHashLabel } from "../../inference-image/src/contract/pods.ts";

/** Waiting for the pods of a Deployment, with `kubectl get` and nothing else. */

const condition = z.object({
  type: z.string(),
  status: z.string(),
  reason: z.string().default(""),
  message: z.string().default(""),
  lastTransitionTime: z.string().optional(),
});

const deployment = z.object({
  metadata: z.object({
    generation: z.number(),
    annotations: z.record(z.string(), z.string()).default({}),
  }),
  spec: z.object({
    replicas: z.number().default(1),
    selector: z.object({ matchLabels: z.record(z.string(), z.string()) }),
  }),
  status: z
    .object({
      observedGeneration: z.number().default(0),
      replicas: z.number().default(0),
      updatedReplicas: z.number().default(0),
      availableReplicas: z.number().default(0),
      conditions: z.array(condition).default([]),
    })
    .prefault({}),
});

const ended = z.object({ exitCode: z.number(), reason: z.string().default("") });
const container = z.object({
  name: z.string(),
  image: z.string().default(""),
  ready: z.boolean().default(false),
  restartCount: z.number().default(0),
  state: z
    .object({
      waiting: z
        .object({ reason: z.string().default(""), message: z.string().default("") })
        .optional(),
      running: z.unknown().optional(),
      terminated: ended.optional(),
    })
    .prefault({}),
  lastState: z.object({ terminated: ended.optional() }).prefault({}),
});
const pod = z.object({
  metadata: z.object({
    name: z.string(),
    creationTimestamp: z.string(),
    deletionTimestamp: z.string().optional(),
    labels: z.record(z.string(), z.string()).default({}),
  }),
  spec: z.object({ terminationGracePeriodSeconds: z.number().default(30) }).prefault({}),
  status: z.object({
    phase: z.string().default(""),
    conditions: z.array(condition).default([]),
    initContainerStatuses: z.array(container).default([]),
    containerStatuses: z.array(container).default([]),
  }),
});
const replicaSet = z.object({
  metadata: z.object({
    annotations: z.record(z.string(), z.string()).default({}),
    labels: z.record(z.string(), z.string()).default({}),
  }),
  status: z.object({ conditions: z.array(condition).default([]) }).prefault({}),
});

export type DeploymentState = z.infer<typeof deployment>;
export type PodState = z.infer<typeof pod>;

/** A Deployment, and the pods of its newest template. */
export interface RolloutState {
  readonly deployment: DeploymentState;
  /** Why pods of the newest template are refused, and since when. What the Deployment says may be about old ones. */
  readonly refused?: { readonly message: string; readonly since?: string };
  readonly pods: readonly PodState[];
  /** How long the pods that go, or are old, may take to stop: the longest of them, 0 without any. */
  readonly graceSeconds: number;
  /** Of the pods whose image did not come, the names of those that pull it again now. */
  readonly pulling: ReadonlySet<string>;
}

/** Runs `kubectl` with these arguments, and gives what it printed. */
export type Kubectl = (args: readonly string[]) => Promise<string>;

/** Nothing where there is no such Deployment. */
export async function readRollout(
  kubectl: Kubectl,
  name: string,
): Promise<RolloutState | undefined> {
  const text = await kubectl(["get", "deployment", name, "--ignore-not-found", "--output=json"]);
  if (text.trim() === "") return undefined;
  const found = deployment.parse(JSON.parse(text));
  const selector = Object.entries(found.spec.selector.matchLabels)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
  const list = async (kind: string) =>
    z
      .object({ items: z.array(z.unknown()) })
      .parse(JSON.parse(await kubectl(["get", kind, `--selector=${selector}`, "--output=json"])))
      .items;
  const [sets, items] = await Promise.all([list("replicasets"), list("pods")]);
  const revision = found.metadata.annotations[revisionAnnotation];
  const newest = z
    .array(replicaSet)
    .parse(sets)
    .find(({ metadata }) => metadata.annotations[revisionAnnotation] === revision);
  const hash = newest?.metadata.labels[templateHashLabel];
  const refused = newest?.status.conditions.find(
    ({ type, status }) => type === "ReplicaFailure" && status === "True",
  );
  const isNew = ({ metadata }: PodState) =>
    metadata.deletionTimestamp === undefined && metadata.labels[templateHashLabel] === hash;
  const all = z.array(pod).parse(items);
  const pods = all
    .filter(isNew)
    .sort((a, b) => a.metadata.creationTimestamp.localeCompare(b.metadata.creationTimestamp));
  const graces = all
    .filter((it) => !isNew(it))
    .map(({ spec }) => spec.terminationGracePeriodSeconds);
  return {
    deployment: found,
    ...(refused !== undefined && {
      refused: { message: refused.message, since: refused.lastTransitionTime },
    }),
    pods,
    graceSeconds: Math.max(0, ...graces),
    pulling: await pullingAgain(kubectl, pods),
  };
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
  { deployment: { metadata, spec, status }, refused, pods, graceSeconds, pulling }: RolloutState,
  replicas: number,
  ageMs: AgeMs,
): RolloutVerdict {
  const seen = status.observedGeneration >= metadata.generation;
  const done =
    status.updatedReplicas >= spec.replicas &&
    status.replicas === status.updatedReplicas &&
    status.availableReplicas >= status.updatedReplicas;
  if (seen && done && status.availableReplicas >= replicas) return "ready";
  if (!seen) return "waiting";
  const [trouble] = pods.flatMap((it) => podTrouble(it, pulling, ageMs) ?? []);
  if (trouble !== undefined) return trouble;
  if (
    refused !== undefined &&
    ageMs(`refused since ${refused.since}`) >= refusalPatienceMs(refused.message, graceSeconds)
  ) {
    return { failed: `a pod was refused: ${refused.message}` };
  }
  const late = status.conditions.some(({ reason }) => reason === "ProgressDeadlineExceeded");
  return late ? stuck(pods) : "waiting";
}

/** What is said of pods that are late without a reason of their own. */
export function stuck(pods: readonly PodState[]): Exclude<RolloutVerdict, string> {
  const it = pods.find(({ status }) => !isReady(status.conditions));
  if (it === undefined) return { failed: "there are fewer pods than asked for" };
  const name = it.metadata.name;
  const unscheduled = it.status.conditions.find(
    ({ type, status }) => type === "PodScheduled" && status === "False",
  );
  if (unscheduled !== undefined) {
    return { failed: `no node has room for a pod: ${unscheduled.message}`, pod: name };
  }
  const late = it.status.containerStatuses.find(({ ready }) => !ready);
  const state = it.status.phase.toLowerCase();
  return late === undefined
    ? { failed: `a pod is ${state} and not ready`, pod: name }
    : {
        failed: `container ${late.name} is ${late.state.running === undefined ? state : "running and not ready"}`,
        pod: name,
        container: late.name,
      };
}

function isReady(conditions: PodState["status"]["conditions"]): boolean {
  return conditions.some(({ type, status }) => type === "Ready" && status === "True");
}

function podTrouble(
  { metadata: { name: pod }, status }: PodState,
  pulling: ReadonlySet<string>,
  ageMs: AgeMs,
): Exclude<RolloutVerdict, string> | undefined {
  for (const it of [...status.initContainerStatuses, ...status.containerStatuses]) {
    const said = (text: string) => ({
      failed: `container ${it.name} ${text}`,
      pod,
      container: it.name,
    });
    const lasts = (trouble: string) => ageMs(`${pod} ${it.name} ${trouble}`) >= patienceMs;
    const { reason = "", message = "" } = it.state.waiting ?? {};
    if (reason === "ErrImageNeverPull" || reason === "InvalidImageName") {
      return said(`has no image: ${message}`);
    }
    if (pullFailed(it) && lasts("image") && !pulling.has(pod)) {
      return said(
        `cannot get its image ${it.image}, which is not on the node: ${message.replace(/\s+/g, " ")}`,
      );
    }
    if (/^Create(Container|PodSandbox).*Error$|^RunContainerError$/.test(reason) && lasts(reason)) {
      return said(`cannot be started: ${message}`);
    }
    if (it.restartCount >= restartLimit && !it.ready) {
      const last = it.state.terminated ?? it.lastState.terminated;
      return said(`restarts in a loop (${it.restartCount} times)${endText(last)}`);
    }
  }
  return undefined;
}

function endText(last: z.infer<typeof ended> | undefined): string {
  if (last === undefined) return "";
  return last.reason === "OOMKilled"
    ? ": it was ended for lack of memory"
    : `: it exited with code ${last.exitCode}`;
}

/** Also while it is pulled again: the reason stays until the container starts. */
function pullFailed({ state }: z.infer<typeof container>): boolean {
  return state.waiting?.reason === "ImagePullBackOff" || state.waiting?.reason === "ErrImagePull";
}

/** `2 of 2 pods are new, 1 is ready`: what changes while one waits. */
export function rolloutText({ deployment: { spec, status }, pods }: RolloutState): string {
  const waiting = pods.flatMap(({ status: { containerStatuses } }) =>
    containerStatuses.flatMap(({ state }) => state.waiting?.reason ?? []),
  );
  const parts = [
    `${status.updatedReplicas} of ${spec.replicas} pods are new`,
    `${status.availableReplicas} ready`,
  ];
  const old = status.replicas - status.updatedReplicas;
  if (old > 0) parts.push(`${old} old`);
  const reasons = [...new Set(waiting)].filter((reason) => reason !== "ContainerCreating");
  return [...parts, ...reasons].join(", ");
}

export interface RolloutWait {
  readonly kubectl: Kubectl;
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
  const { kubectl, deployment: name, replicas, timeoutMs, intervalMs, signal, onState } = options;
  const startMs = performance.now();
  const judge = rolloutJudge(replicas);
  let told = "";
  while (true) {
    const state = await readRollout(kubectl, name);
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

const event = z.object({
  type: z.string().default(""),
  reason: z.string().default(""),
  message: z.string().default(""),
  count: z.number().nullish(),
  lastTimestamp: z.string().nullish(),
  eventTime: z.string().nullish(),
  metadata: z.object({ creationTimestamp: z.string() }),
});

type ClusterEvent = z.infer<typeof event>;

async function eventsOf(kubectl: Kubectl, selector: string): Promise<readonly ClusterEvent[]> {
  const text = await kubectl(["get", "events", `--field-selector=${selector}`, "--output=json"]);
  const { items } = z.object({ items: z.array(event) }).parse(JSON.parse(text));
  return items.sort((a, b) => timeOf(a).localeCompare(timeOf(b)));
}

function timeOf(it: ClusterEvent): string {
  return it.lastTimestamp ?? it.eventTime ?? it.metadata.creationTimestamp;
}

/** Of the pods whose image did not come, those that pull it again: only their events say so. */
async function pullingAgain(
  kubectl: Kubectl,
  pods: readonly PodState[],
): Promise<ReadonlySet<string>> {
  const failed = pods
    .filter(({ status }) =>
      [...status.initContainerStatuses, ...status.containerStatuses].some(pullFailed),
    )
    .map(({ metadata }) => metadata.name);
  const pulling = await Promise.all(
    failed.map(async (name) => {
      // without the events, what the state says counts
      const events = await eventsOf(kubectl, `involvedObject.name=${name}`).catch(() => []);
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
export async function warningsOf(kubectl: Kubectl, name: string): Promise<readonly string[]> {
  const events = await eventsOf(kubectl, `involvedObject.name=${name},type=Warning`);
  const lines = events.map(
    ({ reason, message }) => `${reason}: ${message.trim().replace(/\s+/g, " ")}`,
  );
  return [...new Set(lines)];
}

/** The last lines that a container wrote; of one that was restarted, those before its end. */
export async function lastPodLines(
  kubectl: Kubectl,
  { pod: name, container: of }: { readonly pod: string; readonly container?: string },
  count: number,
): Promise<readonly string[]> {
  const ask = async (...more: readonly string[]) => {
    const args = ["logs", name, ...(of === undefined ? [] : [`--container=${of}`])];
    const text = await kubectl([...args, `--tail=${count}`, ...more]).catch(() => "");
    return text.split("\n").filter((line) => line.trim() !== "");
  };
  const now = await ask();
  return now.length > 0 ? now : ask("--previous");
}
