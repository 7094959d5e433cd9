import { setTimeout as sleep } from "node:timers/promises";
import type { VersionInfo } from "@kubernetes/client-node";
import {
  type ClusterNode,
  podTrouble,
  scaleDownWindow,
  unrest,
} from "../../artefact/cluster-objects.ts";
import { Interrupted } from "../../artefact/interrupt.ts";
import { reason } from "../../bench/run/http-client.ts";
import { describeCommit, describeMachine } from "../../bench/run/machine.ts";
import { UserError } from "../../contract/user-error.ts";
import { type ClusterApi, openCluster } from "../cluster/cluster-api.ts";
import { type Drill, type DrillOptions, DrillRun, pollMs, scaleMarginSeconds } from "./drill.ts";
import { type DrillName, type DrillRecord, drillRecordSchemaVersion } from "./drill-record.ts";
import {
  deadlineSeconds,
  differencesOf,
  minReplicas,
  readSnapshot,
  type Snapshot,
} from "./snapshot.ts";

/** How long a Deployment may take to be at rest before anything is done to it. */
const restSeconds = 30;
/** For requests that are still open when the cluster is restored. */
const endLoadMs = 5_000;

/**
 * Runs a drill, and makes the cluster what it was.
 *
 * @throws {UserError} one line where it cannot begin; nothing was changed.
 * @throws {Interrupted} when the signal came; everything is as it was, or the message says what is not.
 */
export async function runDrill(drill: Drill, options: DrillOptions): Promise<DrillRecord> {
  const { signal, target, onStep } = options;
  const startedAt = new Date();
  const sayInterrupted = () =>
    onStep?.("interrupted: making the cluster what it was; Ctrl-C again leaves it as it is");
  // an interruption ends waits, and no request that restores the cluster
  const api = await openCluster(target.access);
  try {
    const first = await restingSnapshot(api, drill, options);
    const run = new DrillRun(api, options, first, signal);
    await run.observe();
    await drill.prepare?.(run);
    signal.addEventListener("abort", sayInterrupted, { once: true });
    const problem = await run.act(drill).then(
      () => undefined,
      (error: unknown) => error,
    );
    run.beginRestoring();
    // nothing more is sent; answers are waited for when the cluster is as it was
    const waits = new AbortController();
    const ended = run.load.end(waits.signal).catch(() => {});
    if (problem !== undefined && run.changed && !signal.aborted) {
      run.check("the exercise goes through", false, reason(problem));
    }
    await restore(drill, run);
    const cut = setTimeout(() => waits.abort(), signal.aborted ? 0 : endLoadMs);
    await ended;
    clearTimeout(cut);
    if (signal.aborted) {
      const last = run.checks.find(({ claim }) => claim === asItWas);
      const verdict = last?.passed ? asItWas : "the cluster is not as it was";
      throw new Interrupted(`${verdict}: ${last?.message}`);
    }
    if (problem !== undefined && !run.changed) throw problem;
    return await recordOf(drill.name, run, startedAt);
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

/** Waits until the Deployment is at rest, with no more pods than the drill begins with. */
async function restingSnapshot(
  api: ClusterApi,
  { scaleDown }: Drill,
  { target, signal, onStep }: DrillOptions,
): Promise<Snapshot> {
  let endsMs = performance.now() + restSeconds * 1_000;
  const said = new Set<string>();
  const sayOnce = (topic: string, text: string) => {
    if (!said.has(topic)) onStep?.(text);
    said.add(topic);
  };
  for (;;) {
    signal.throwIfAborted();
    const seen = await readSnapshot(api, target);
    const { deployment, pods, autoscaler } = seen;
    const { replicas } = deployment.spec;
    const why =
      unrest(deployment, pods) ?? (replicas === 0 ? "it is asked for no pods" : undefined);
    const least = minReplicas(seen) ?? replicas;
    const above = scaleDown !== undefined && replicas > least;
    if (why === undefined && !above) return seen;
    if (above && autoscaler !== undefined && !said.has("above")) {
      const seconds = scaleDownWindow(autoscaler) + scaleMarginSeconds;
      endsMs = performance.now() + seconds * 1_000;
      sayOnce(
        "above",
        `the autoscaler holds ${replicas} pods from an earlier load; waiting for ${least}, up to ${seconds} s`,
      );
    }
    if (performance.now() > endsMs) {
      if (why === undefined && scaleDown === "awaited") {
        onStep?.(`the autoscaler still asks for ${replicas} pods: the service is under load`);
        return seen;
      }
      const trouble = pods.map(podTrouble).find((it) => it !== undefined);
      throw new UserError(
        why === undefined
          ? `the autoscaler must be at its minimum of ${least} pods first, it asks for ${replicas}`
          : `Deployment '${target.deployment}' must be at rest first: ${why}${trouble === undefined ? "" : `; ${trouble}`}`,
      );
    }
    if (why !== undefined && !above)
      sayOnce("rest", `waiting until the Deployment is at rest: ${why}`);
    await sleep(pollMs, undefined, { signal });
  }
}

const asItWas = "the cluster is as it was";

async function restore(drill: Drill, run: DrillRun): Promise<void> {
  try {
    await run.withRetries(async () => drill.restore?.(run));
    try {
      await settle(run);
    } finally {
      await run.withRetries(async () => drill.cleanUp?.(run));
    }
    const now = await run.observe();
    const wrong = differencesOf(run.before, now);
    run.check(asItWas, wrong.length === 0, wrong.join("; ") || restoredText(run.before, now));
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
async function settle(run: DrillRun): Promise<void> {
  const { spec } = run.before.deployment;
  const { autoscaler } = run.before;
  const now = await run.untilSettled("the pods are ready again", deadlineSeconds(run.before));
  if (autoscaler === undefined || now.deployment.spec.replicas <= spec.replicas) return;
  // interrupted, nobody waits for minutes: without load the autoscaler does it by itself
  if (run.options.signal.aborted) return;
  const seconds = scaleDownWindow(autoscaler) + scaleMarginSeconds;
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

async function recordOf(exercise: DrillName, run: DrillRun, startedAt: Date): Promise<DrillRecord> {
  const { api, target, before } = run;
  // what was seen is kept also where the API server is away, and who may use a namespace need not be allowed to see nodes
  const version = await api.get<VersionInfo>("/version").catch(() => undefined);
  const nodes = await api.list<ClusterNode>("/api/v1/nodes").catch(() => []);
  const container = before.deployment.spec.template.spec?.containers[0];
  const status = before.pods[0]?.status?.containerStatuses?.find(
    ({ name }) => name === container?.name,
  );
  return {
    schema: drillRecordSchemaVersion,
    kind: "k8s",
    exercise,
    startedAt: startedAt.toISOString(),
    finishedAt: new Date().toISOString(),
    subject: {
      ...(await describeCommit(run.options.repository)),
      machine: describeMachine(),
      environment: target.environment,
      cluster: {
        context: target.access.context ?? "the current context",
        version: version?.gitVersion ?? "unknown",
        nodes: nodes.map(({ metadata, status }) => ({
          name: metadata.name,
          kubelet: status?.nodeInfo?.kubeletVersion ?? "",
          os: status?.nodeInfo?.osImage ?? "",
          cpu: status?.allocatable?.cpu ?? "",
          memory: status?.allocatable?.memory ?? "",
        })),
      },
      namespace: target.namespace,
      deployment: target.deployment,
      image: container?.image ?? "",
      imageId: status?.imageID ?? "",
    },
    load: run.load.record,
    replicas: run.replicas,
    steps: run.steps,
    refusals: run.rejections,
    checks: run.checks,
    passed: run.checks.every(({ passed }) => passed),
  };
}
