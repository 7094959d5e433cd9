import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { describeLatency, sortedLatencies } from "../../bench/load/latency.ts";
import { prepareEmbedRequests } from "../../bench/load/prepare.ts";
import { countCodes, isGood, type TimedSample } from "../../bench/load/samples.ts";
import { type RunningLoad, startLoad } from "../../bench/load/start-load.ts";
import { clockMs } from "../../bench/load/worker-messages.ts";
import {
  type ClusterAutoscaler,
  type ClusterDeployment,
  type ClusterPod,
  type ClusterReplicaSet,
  clusterAutoscaler,
  clusterDeployment,
  clusterNode,
  clusterPod,
  clusterReplicaSet,
  clusterService,
  isOver,
  isReady,
  listOf,
  metricText,
  podTrouble,
  selects,
  unrest,
} from "../../bench/src/cluster-objects.ts";
import { type EncodedImage, requestOf } from "../../bench/src/embed-requests.ts";
import { type HttpClient, openHttpClient, reason } from "../../bench/src/http-client.ts";
import {
  type Exercise,
  type ExerciseCheck,
  type ExerciseLoad,
  type K8sRecord,
  k8sRecordSchemaVersion,
  type ReplicaPoint,
} from "../../bench/src/k8s-record.ts";
import { describeCommit, describeMachine } from "../../bench/src/machine.ts";
import { podPortNames } from "../../inference-image/src/contract/pods.ts";
import { Interrupted } from "./interrupt.ts";
import {
  ApiRefusal,
  accessText,
  type ClusterAccess,
  type ClusterApi,
  kubectl,
  openCluster,
} from "./kubectl.ts";
import { project } from "./project.ts";
import { UserError } from "./user-error.ts";

/** What an exercise is done to. */
export interface ExerciseTarget {
  /** Name of the environment; absent where the cluster was named by hand. */
  readonly environment?: string;
  readonly access: ClusterAccess;
  readonly namespace: string;
  /** Name of the Deployment. */
  readonly deployment: string;
  /** Where its Service is reached from this machine; absent: through the API server. */
  readonly url?: string;
  /** The Service that leads to it, where it is reached through the API server; absent: the first that selects its pods. */
  readonly service?: { readonly name: string; readonly port: string | number };
  /** An embed server that strangers can reach asks for a key. */
  readonly asksForKey?: boolean;
}

export interface ExerciseOptions {
  readonly target: ExerciseTarget;
  readonly images: readonly EncodedImage[];
  /**
   * Requests a second while pods come and go.
   *
   * @default 2 - two pods of kind-local do it without their autoscaler
   */
  readonly ratePerSecond?: number;
  /**
   * Clients of a load that is to make the autoscaler act.
   *
   * @default 8
   */
  readonly concurrency?: number;
  /** For an embed server that asks for one. */
  readonly apiKey?: string;
  readonly signal: AbortSignal;
  /** What is done and seen, as it happens. */
  readonly onStep?: (line: string) => void;
}

/** Rate or number of clients of a load. Each client sends its next request once the last one is answered. */
export type Pace =
  | { readonly kind: "fixed rate"; readonly ratePerSecond: number }
  | { readonly kind: "closed loop"; readonly concurrency: number };

/** How an exercise goes, and what undoes it. */
export interface ExerciseBody {
  readonly exercise: Exercise;
  /** Fails with a {@link UserError} where there is nothing to exercise; nothing has been changed then. */
  prepare?(run: ExerciseRun): Promise<void>;
  act(run: ExerciseRun): Promise<void>;
  /** Called always, also when `act` has failed or was interrupted: make the cluster what it was. */
  restore(run: ExerciseRun): Promise<void>;
  /** Called when the pods are at rest again, or will not be: take away what is left of the exercise. */
  tidy?(run: ExerciseRun): Promise<void>;
}

/** The Deployment at one moment, and what belongs to it. */
export interface Snapshot {
  readonly deployment: ClusterDeployment;
  readonly pods: readonly ClusterPod[];
  /** Its versions: the present one, and those that a rollback can go to. */
  readonly replicaSets: readonly ClusterReplicaSet[];
  readonly autoscaler?: ClusterAutoscaler;
}

export const defaultRate = 2;
export const defaultConcurrency = 8;

const pollMs = 500;
/** How long a Deployment may take to be at rest before anything is done to it. */
const restSeconds = 30;
/** How long an API server may be away: while the exercise goes on, and while the cluster is made what it was. */
const actPatienceMs = 15_000;
const restorePatienceMs = 90_000;
/** For requests that are still open when the cluster is as it was. */
const endLoadMs = 5_000;
/** Open requests at a fixed rate; beyond it the load would only lengthen a queue. */
const openLimit = 500;
/** Beyond what an autoscaler waits by itself: its period, the metrics' age and the pods' own end. */
const scaleMarginSeconds = 120;

/** Something must be so, and is not. What was done is undone, and the record says it. */
export class ClaimFailed extends Error {
  override readonly name = "ClaimFailed";
}

/** One exercise on one Deployment, while it goes on. */
export class ExerciseRun {
  readonly steps: { atSeconds: number; text: string }[] = [];
  readonly replicas: ReplicaPoint[] = [];
  readonly refusals: { asked: string; status: number; reason: string; message: string }[] = [];
  readonly checks: ExerciseCheck[] = [];
  #load: { readonly running: RunningLoad; readonly pace: Pace; readonly url: string } | undefined;
  #loads: {
    readonly samples: readonly TimedSample[];
    readonly pace: Pace;
    readonly url: string;
  }[] = [];
  #phases: { readonly name: string; readonly fromMs: number; toMs?: number }[] = [];
  #cleanups: (() => Promise<void>)[] = [];
  #patienceMs = actPatienceMs;
  /** Something was asked of the cluster that may have changed it. */
  changed = false;

  constructor(
    readonly api: ClusterApi,
    readonly options: ExerciseOptions,
    /** How everything was before. */
    readonly before: Snapshot,
    private readonly startedMs: number,
    /** Of what may be interrupted; while the cluster is made what it was, another one. */
    public signal: AbortSignal,
  ) {}

  /** From here on the cluster is made what it was: the interruption no longer counts, and an API server may be away for longer. */
  beginRestoring(): void {
    this.signal = new AbortController().signal;
    this.#patienceMs = restorePatienceMs;
  }

  get target(): ExerciseTarget {
    return this.options.target;
  }

  /** Path of the API for objects of the namespace. */
  path(group: string, plural: string, name?: string): string {
    return namespacedPath(this.target.namespace, group, plural, name);
  }

  step(text: string): void {
    this.steps.push({ atSeconds: this.#seconds(), text });
    this.#tell(text);
  }

  check(claim: string, passed: boolean, message: string): void {
    this.checks.push({ claim, passed, message });
    this.step(`${passed ? "✔" : "✘"} ${claim}: ${message}`);
  }

  refused(asked: string, { status, reason, message }: ApiRefusal): void {
    this.refusals.push({ asked, status, reason, message });
  }

  /** kubectl, in the namespace of the Deployment. */
  async kubectl(...args: readonly string[]): Promise<string> {
    const { access, namespace } = this.target;
    this.changed = true;
    return kubectl(access, [`--namespace=${namespace}`, ...args], this.signal);
  }

  /** @throws {ApiRefusal} with the API server's status and message. */
  async post(path: string, body: unknown): Promise<void> {
    this.changed = true;
    await this.api.post(path, body);
  }

  /** Try again while the API server is away for a moment. Only for what may be done twice. */
  async patiently<T>(work: () => Promise<T>): Promise<T> {
    const endsMs = performance.now() + this.#patienceMs;
    for (let tries = 1; ; tries++) {
      try {
        return await work();
      } catch (error) {
        this.signal.throwIfAborted();
        if (isFinal(error) || performance.now() > endsMs) throw error;
        if (tries === 1)
          this.step(`trying again for up to ${this.#patienceMs / 1_000} s: ${reason(error)}`);
        await sleep(pollMs, undefined, { signal: this.signal });
      }
    }
  }

  /** The Deployment, its pods and its autoscaler now; what has changed is kept for the record. */
  async look(): Promise<Snapshot> {
    const seen = await this.patiently(() => look(this.api, this.target));
    const point = pointOf(seen);
    const { atSeconds: _, ...last } = this.replicas.at(-1) ?? { atSeconds: 0 };
    if (!isDeepStrictEqual(last, point)) {
      this.replicas.push({ atSeconds: this.#seconds(), ...point });
      this.#tell(`  ${standing(seen)}`);
    }
    return seen;
  }

  /**
   * Look until something is so.
   *
   * @param what - What is waited for, for the message when it does not come.
   * @throws {ClaimFailed} after `seconds`.
   */
  async until(
    what: string,
    seconds: number,
    isSo: (seen: Snapshot) => boolean | Promise<boolean>,
  ): Promise<Snapshot> {
    const endsMs = performance.now() + seconds * 1_000;
    for (;;) {
      const seen = await this.look();
      if (await isSo(seen)) return seen;
      if (performance.now() > endsMs) {
        throw new ClaimFailed(`${what}: not after ${seconds} s; ${standing(seen)}`);
      }
      await sleep(pollMs, undefined, { signal: this.signal });
    }
  }

  /** Until every pod is of the Deployment's template and ready, and no other is left. */
  async atRest(what: string, seconds: number): Promise<Snapshot> {
    return this.until(
      what,
      seconds,
      ({ deployment, pods }) => unrest(deployment, pods) === undefined,
    );
  }

  /** Look for some time. */
  async watch(seconds: number): Promise<void> {
    const endsMs = performance.now() + seconds * 1_000;
    while (performance.now() < endsMs) {
      await this.look();
      await sleep(pollMs, undefined, { signal: this.signal });
    }
  }

  /** Begin to send requests, or send them at another pace. */
  async load(pace: Pace): Promise<void> {
    await this.#stopLoad(this.signal);
    const { target, images, apiKey } = this.options;
    const url = target.url ?? (await this.#throughApi());
    const http =
      target.url === undefined
        ? this.api.openHttp()
        : openHttpClient(
            512,
            apiKey === undefined ? undefined : { origin: target.url, key: apiKey },
            { oneRequestEach: true },
          );
    this.#cleanups.push(() => http.close());
    if (this.#loads.length === 0) await requireAnswer(http, url, images, this.signal);
    const requests = await prepareEmbedRequests({ url, apiKey: target.url && apiKey }, images);
    const running = startLoad(
      {
        ...requests,
        // a new connection for each request, so that the Service chooses a pod for each
        headers: { ...requests.headers, connection: "close" },
        connect: target.url === undefined ? this.api.connect : undefined,
      },
      pace.kind === "closed loop"
        ? pace
        : { kind: "open loop", arrivals: "constant", ratePerSecond: pace.ratePerSecond, seed: 0 },
      { openLimit },
    );
    // an autoscaler may act on it
    this.changed = true;
    this.#load = { running, pace, url };
    this.step(
      pace.kind === "fixed rate"
        ? `load: ${pace.ratePerSecond} requests a second`
        : `load: ${pace.concurrency} clients, each after its last answer`,
    );
  }

  /** What is done from here on is called so in the record. */
  phase(name: string): void {
    const last = this.#phases.at(-1);
    const now = clockMs();
    if (last !== undefined) last.toMs ??= now;
    this.#phases.push({ name, fromMs: now });
  }

  /** @param cut - Ends the wait for answers. */
  async endLoad(cut = this.signal): Promise<void> {
    const last = this.#phases.at(-1);
    if (last !== undefined) last.toMs ??= clockMs();
    await this.#stopLoad(cut);
    await this.#close();
  }

  /** Requests that failed so far, in a few words; empty where none did. */
  failures(phase: string): string {
    return failureText(this.#loadOf(phase));
  }

  /** Say of a phase that every request of it was answered. Call it when the load has ended. */
  checkAnswered(phase: string): void {
    const load = this.#loadOf(phase);
    const { latencyMs } = load;
    const times =
      latencyMs === undefined
        ? ""
        : `, p50 ${latencyMs.p50.toFixed(0)} ms, max ${latencyMs.max.toFixed(0)} ms`;
    this.check(
      `every request is answered: ${phase}`,
      load.failed === 0 && load.requests > 0,
      load.failed === 0 ? `${load.requests} requests, 0 failed${times}` : failureText(load),
    );
  }

  recordLoad(): K8sRecord["load"] {
    const first = this.#loads[0];
    if (first === undefined) return undefined;
    const paces = this.#loads.map(({ pace }) => pace);
    const main = paces.find(({ kind }) => kind === "closed loop") ?? first.pace;
    return {
      ...main,
      imagesPerRequest: 1,
      connections: "one for each request",
      url: first.url,
      phases: this.#phases.map(({ name }) => this.#loadOf(name)),
    };
  }

  /** A URL of the API server that leads to the Service of the Deployment. */
  async #throughApi(): Promise<string> {
    const { namespace, service, deployment } = this.target;
    if (service !== undefined) {
      return this.api.serviceUrl(namespace, service.name, service.port);
    }
    const found = await this.api.get(this.path("v1", "services"), listOf(clusterService));
    const labels = this.before.pods[0]?.metadata.labels ?? {};
    const own = found?.items.find(({ spec }) => selects(spec.selector, labels));
    const port =
      own?.spec.ports.find(({ name }) => name === podPortNames.http) ?? own?.spec.ports[0];
    if (own === undefined || port === undefined) {
      throw new UserError(
        `no Service of namespace '${namespace}' leads to Deployment '${deployment}'`,
      );
    }
    return this.api.serviceUrl(namespace, own.metadata.name, port.port);
  }

  #tell(text: string): void {
    this.options.onStep?.(`${this.#seconds().toFixed(1).padStart(6)} s  ${text}`);
  }

  #seconds(): number {
    return Math.round((performance.now() - this.startedMs) / 100) / 10;
  }

  async #stopLoad(cut: AbortSignal): Promise<void> {
    const load = this.#load;
    if (load === undefined) return;
    this.#load = undefined;
    await load.running.stop(cut);
    this.#loads.push({ samples: load.running.samples, pace: load.pace, url: load.url });
    await this.#close();
  }

  async #close(): Promise<void> {
    for (const cleanup of this.#cleanups.splice(0)) await cleanup();
  }

  #loadOf(phase: string): ExerciseLoad {
    const spans = this.#phases.filter(({ name }) => name === phase);
    const now = clockMs();
    const samples = [...this.#loads.map((it) => it.samples), this.#load?.running.samples ?? []]
      .flat()
      .filter(({ dueMs }) =>
        spans.some(({ fromMs, toMs = now }) => dueMs >= fromMs && dueMs < toMs),
      );
    return loadOf(
      phase,
      samples,
      spans.reduce((sum, { fromMs, toMs = now }) => sum + toMs - fromMs, 0) / 1_000,
    );
  }
}

/** What no second try makes good: a wait that was too long, and a user who may not. */
function isFinal(error: unknown): boolean {
  if (error instanceof ApiRefusal) return error.status === 403;
  if (error instanceof UserError) return error.message.includes("(Forbidden)");
  return error instanceof ClaimFailed;
}

const answerMs = 30_000;

/** Before anything is changed: whoever answers nothing at rest says nothing about an exercise. */
async function requireAnswer(
  http: HttpClient,
  url: string,
  images: readonly EncodedImage[],
  signal: AbortSignal,
): Promise<void> {
  const [address, request] = requestOf(url, "raw", images.slice(0, 1));
  const answer = await http
    .send(address, { ...request, timeoutMs: answerMs, signal })
    .catch((error: unknown) => {
      throw new UserError(`${url} does not answer: ${reason(error)}`);
    });
  if (answer.status === 200) return;
  const said = answer.body.toString("utf8").slice(0, 200);
  throw new UserError(`${address} must answer with status 200, got ${answer.status}: ${said}`);
}

/** Of the samples of one phase. */
function loadOf(phase: string, samples: readonly TimedSample[], seconds: number): ExerciseLoad {
  const good = samples.filter(isGood);
  const { latencyMs } = describeLatency(sortedLatencies(good));
  return {
    phase,
    seconds: Math.round(seconds * 10) / 10,
    requests: samples.length,
    failed: samples.length - good.length,
    errors: countCodes(samples),
    latencyMs: latencyMs && {
      samples: good.length,
      p50: latencyMs.p50,
      p95: latencyMs.p95,
      p99: latencyMs.p99,
      max: latencyMs.max,
      p99Reliable: latencyMs.p99Reliable,
    },
  };
}

function failureText({ requests, failed, errors }: ExerciseLoad): string {
  if (requests === 0) return "no request was sent";
  if (failed === 0) return "";
  const codes = Object.entries(errors).map(([code, count]) => `${count} × ${code}`);
  return `${failed} of ${requests} requests failed: ${codes.join(", ")}`;
}

export function namespacedPath(
  namespace: string,
  group: string,
  plural: string,
  name?: string,
): string {
  const root = group === "v1" ? "/api/v1" : `/apis/${group}`;
  return `${root}/namespaces/${namespace}/${plural}${name === undefined ? "" : `/${name}`}`;
}

async function look(api: ClusterApi, target: ExerciseTarget): Promise<Snapshot> {
  const { namespace, deployment: name } = target;
  const path = (group: string, plural: string, object?: string) =>
    namespacedPath(namespace, group, plural, object);
  const deployment = await api.get(path("apps/v1", "deployments", name), clusterDeployment);
  if (deployment === undefined) {
    throw new UserError(
      `there is no Deployment '${name}' in namespace '${namespace}' of ${accessText(target.access)}`,
    );
  }
  const selector = Object.entries(deployment.spec.selector.matchLabels)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
  const selected = `?labelSelector=${encodeURIComponent(selector)}`;
  const [pods, replicaSets, autoscalers] = await Promise.all([
    api.get(`${path("v1", "pods")}${selected}`, listOf(clusterPod)),
    api.get(`${path("apps/v1", "replicasets")}${selected}`, listOf(clusterReplicaSet)),
    api.get(path("autoscaling/v2", "horizontalpodautoscalers"), listOf(clusterAutoscaler)),
  ]);
  return {
    deployment,
    pods: (pods?.items ?? []).filter((pod) => !isOver(pod)),
    replicaSets: (replicaSets?.items ?? []).filter(({ metadata: { ownerReferences } }) =>
      ownerReferences.some(({ uid }) => uid === deployment.metadata.uid),
    ),
    autoscaler: autoscalers?.items.find(
      ({ spec: { scaleTargetRef: of } }) => of.kind === "Deployment" && of.name === name,
    ),
  };
}

function pointOf({ deployment, pods, autoscaler }: Snapshot): Omit<ReplicaPoint, "atSeconds"> {
  return {
    wanted: deployment.spec.replicas,
    ready: pods.filter(isReady).length,
    pods: pods.length,
    metric: autoscaler === undefined ? undefined : metricText(autoscaler),
  };
}

/** How things stand, for a message about what did not come. */
function standing(seen: Snapshot): string {
  const { wanted, ready, pods, metric } = pointOf(seen);
  const trouble = seen.pods.map(podTrouble).find((it) => it !== undefined);
  const failure = seen.deployment.status.conditions.find(
    ({ type, status }) => type === "ReplicaFailure" && status === "True",
  );
  return [
    `${ready} of ${wanted} pods are ready, ${pods} are there`,
    ...(metric === undefined ? [] : [metric]),
    ...(failure === undefined ? [] : [failure.message]),
    ...(trouble === undefined ? [] : [trouble]),
  ].join("; ");
}

/**
 * Do an exercise, and make the cluster what it was.
 *
 * @throws {UserError} one line where it cannot begin; nothing was changed.
 * @throws {Interrupted} when the signal came; everything is as it was, or the message says what is not.
 */
export async function runExercise(
  body: ExerciseBody,
  options: ExerciseOptions,
): Promise<K8sRecord> {
  const { signal, target, onStep } = options;
  const startedAt = new Date();
  const api = await openCluster(target.access, signal);
  const sayInterrupted = () =>
    onStep?.("interrupted: making the cluster what it was; Ctrl-C again leaves it as it is");
  try {
    const first = await restingSnapshot(api, target, signal, onStep);
    const run = new ExerciseRun(api, options, first, performance.now(), signal);
    await run.look();
    await body.prepare?.(run);
    signal.addEventListener("abort", sayInterrupted, { once: true });
    let problem: unknown;
    try {
      await body.act(run);
    } catch (error) {
      problem = error;
    }
    run.beginRestoring();
    // nothing more is sent; answers are waited for when the cluster is as it was
    const waits = new AbortController();
    const ended = run.endLoad(waits.signal).catch(() => {});
    if (problem !== undefined && run.changed && !signal.aborted) {
      run.check("the exercise goes through", false, reason(problem));
    }
    await restore(body, run);
    const cut = setTimeout(() => waits.abort(), signal.aborted ? 0 : endLoadMs);
    await ended;
    clearTimeout(cut);
    if (signal.aborted) {
      const last = run.checks.find(({ claim }) => claim === asItWas);
      const verdict = last?.passed ? asItWas : "the cluster is not as it was";
      throw new Interrupted(`${verdict}: ${last?.message}`);
    }
    if (problem !== undefined && !run.changed) throw problem;
    return await recordOf(body.exercise, run, startedAt);
  } catch (error) {
    if (signal.aborted && !(error instanceof Interrupted)) {
      throw new Interrupted("nothing was changed", { cause: error });
    }
    throw error;
  } finally {
    signal.removeEventListener("abort", sayInterrupted);
    await api.close();
  }
}

const asItWas = "the cluster is as it was";

async function restore(body: ExerciseBody, run: ExerciseRun): Promise<void> {
  try {
    await run.patiently(() => body.restore(run));
    try {
      await settle(run);
    } finally {
      await run.patiently(async () => body.tidy?.(run));
    }
    const now = await run.look();
    const wrong = differencesOf(run.before, now);
    run.check(
      asItWas,
      wrong.length === 0,
      wrong.length === 0 ? restoredText(run.before, now) : wrong.join("; "),
    );
  } catch (error) {
    run.check(asItWas, false, error instanceof Error ? error.message : String(error));
  }
}

function restoredText(before: Snapshot, now: Snapshot): string {
  const [was, is] = [before.deployment.spec.replicas, now.deployment.spec.replicas];
  const pods = `${is} ${is === 1 ? "pod" : "pods"} of the same template`;
  return is > was ? `${pods}; without load the autoscaler goes back to ${was} by itself` : pods;
}

/** Until all pods are there again; where the autoscaler has added some, until it has taken them away. */
async function settle(run: ExerciseRun): Promise<void> {
  const { spec } = run.before.deployment;
  const { autoscaler } = run.before;
  const now = await run.atRest("the pods are ready again", deadlineSeconds(run.before));
  if (autoscaler === undefined || now.deployment.spec.replicas <= spec.replicas) return;
  // interrupted, nobody waits for minutes: without load the autoscaler does it by itself
  if (run.options.signal.aborted) return;
  const seconds =
    autoscaler.spec.behavior.scaleDown.stabilizationWindowSeconds + scaleMarginSeconds;
  run.step(
    `the autoscaler has asked for ${now.deployment.spec.replicas} pods; without load it takes them away in up to ${seconds} s`,
  );
  await run.until(
    `the autoscaler is back at ${spec.replicas} pods`,
    seconds,
    ({ deployment, pods }) =>
      deployment.spec.replicas <= spec.replicas && unrest(deployment, pods) === undefined,
  );
}

/** Seconds that a rolling update of this Deployment may take. */
export function deadlineSeconds({ deployment }: Snapshot): number {
  return deployment.spec.progressDeadlineSeconds + 60;
}

function differencesOf(before: Snapshot, now: Snapshot): readonly string[] {
  const owned = before.autoscaler !== undefined;
  const [wanted, is] = [before.deployment.spec.replicas, now.deployment.spec.replicas];
  const uidsOf = ({ replicaSets }: Snapshot) => replicaSets.map(({ metadata }) => metadata.uid);
  const gone = uidsOf(before).filter((uid) => !uidsOf(now).includes(uid)).length;
  const added = uidsOf(now).filter((uid) => !uidsOf(before).includes(uid)).length;
  const [limit, limitNow] = [before, now].map((it) => it.deployment.spec.revisionHistoryLimit);
  return [
    ...(isDeepStrictEqual(before.deployment.spec.template, now.deployment.spec.template)
      ? []
      : ["the pod template is another one"]),
    ...(wanted === is || owned ? [] : [`${is} pods are asked for in place of ${wanted}`]),
    ...(gone === 0 ? [] : [`earlier versions that are gone: ${gone}`]),
    ...(added === 0 ? [] : [`versions that were not there before: ${added}`]),
    ...(limit === limitNow ? [] : [`revisionHistoryLimit is ${limitNow} in place of ${limit}`]),
  ];
}

async function restingSnapshot(
  api: ClusterApi,
  target: ExerciseTarget,
  signal: AbortSignal,
  onStep: ExerciseOptions["onStep"],
): Promise<Snapshot> {
  const endsMs = performance.now() + restSeconds * 1_000;
  let said = false;
  for (;;) {
    const seen = await look(api, target);
    const restless = unrest(seen.deployment, seen.pods);
    if (restless === undefined && seen.deployment.spec.replicas > 0) return seen;
    const why = restless ?? "it is asked for no pods";
    if (performance.now() > endsMs) {
      const trouble = seen.pods.map(podTrouble).find((it) => it !== undefined);
      throw new UserError(
        `Deployment '${target.deployment}' must be at rest first: ${why}${trouble === undefined ? "" : `; ${trouble}`}`,
      );
    }
    if (!said) onStep?.(`waiting until the Deployment is at rest: ${why}`);
    said = true;
    await sleep(pollMs, undefined, { signal });
  }
}

async function recordOf(exercise: Exercise, run: ExerciseRun, startedAt: Date): Promise<K8sRecord> {
  const { api, target, before } = run;
  // what was seen is kept also where the API server is away, and who may use a namespace need not be allowed to see nodes
  const version = await api
    .get("/version", z.object({ gitVersion: z.string() }))
    .catch(() => undefined);
  const nodes = await api.get("/api/v1/nodes", listOf(clusterNode)).catch(() => undefined);
  const container = before.deployment.spec.template.spec.containers[0];
  const status = before.pods[0]?.status.containerStatuses.find(
    ({ name }) => name === container?.name,
  );
  return {
    schema: k8sRecordSchemaVersion,
    kind: "k8s",
    exercise,
    startedAt: startedAt.toISOString(),
    finishedAt: new Date().toISOString(),
    subject: {
      ...(await describeCommit(project)),
      machine: describeMachine(),
      environment: target.environment,
      cluster: {
        context: target.access.context ?? "the current context",
        version: version?.gitVersion ?? "unknown",
        nodes: (nodes?.items ?? []).map(({ metadata, status: { allocatable, nodeInfo } }) => ({
          name: metadata.name,
          kubelet: nodeInfo.kubeletVersion,
          os: nodeInfo.osImage,
          cpu: allocatable.cpu ?? "",
          memory: allocatable.memory ?? "",
        })),
      },
      namespace: target.namespace,
      deployment: target.deployment,
      image: container?.image ?? "",
      imageId: status?.imageID ?? "",
    },
    load: run.recordLoad(),
    replicas: run.replicas,
    steps: run.steps,
    refusals: run.refusals,
    checks: run.checks,
    passed: run.checks.every(({ passed }) => passed),
  };
}
