import { setTimeout as sleep } from "node:timers/promises";
import type { VersionInfo } from "@kubernetes/client-node";
import {
  type ClusterNode,
  podProblem,
  rolloutProblem,
  scaleDownWindow,
} from "../../artefact/cluster-objects.ts";
import { Interrupted } from "../../artefact/interrupt.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { describeCommit, describeMachine } from "../../target/readings/machine.ts";
import { reason } from "../../target/requests/http-client.ts";
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

/** Time that the Deployment has to settle before the drill. */
const settleSeconds = 30;
/** Time that open requests have once the cluster is restored. */
const drainLoadMs = 5_000;

/**
 * Runs a drill, and restores the cluster.
 *
 * @throws {UserError} one line, before any change, if the drill cannot start.
 * @throws {Interrupted} if `signal` is aborted; the message lists what could not be restored.
 */
export async function runDrill(drill: Drill, options: DrillOptions): Promise<DrillRecord> {
  const { signal, target, onStep } = options;
  const startedAt = new Date();
  const reportInterruption = () =>
    onStep?.("interrupted: restoring the cluster; Ctrl-C again stops without restoring");
  // without `signal`, because an interruption must not abort the requests that restore the cluster
  const api = await openCluster(target.access);
  try {
    const first = await settledSnapshot(api, drill, options);
    const run = new DrillRun(api, options, first, signal);
    await run.observe();
    await drill.prepare?.(run);
    signal.addEventListener("abort", reportInterruption, { once: true });
    const problem = await run.act(drill).then(
      () => undefined,
      (error: unknown) => error,
    );
    run.beginRestoring();
    // sends no more requests; open ones are drained once the cluster is restored
    const drained = new AbortController();
    const ended = run.load.end(drained.signal).catch(() => {});
    if (problem !== undefined && run.changed && !signal.aborted) {
      run.check("the drill completes", false, reason(problem));
    }
    await restore(drill, run);
    const cut = setTimeout(() => drained.abort(), signal.aborted ? 0 : drainLoadMs);
    await ended;
    clearTimeout(cut);
    if (signal.aborted) {
      const last = run.checks.find(({ claim }) => claim === restored);
      const verdict = last?.passed ? restored : "the cluster is not restored";
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
    signal.removeEventListener("abort", reportInterruption);
    await api.close();
  }
}

/** Waits until the Deployment has settled, with no more pods than the drill may start with. */
async function settledSnapshot(
  api: ClusterApi,
  { scaleDown }: Drill,
  { target, signal, onStep }: DrillOptions,
): Promise<Snapshot> {
  let endsMs = performance.now() + settleSeconds * 1_000;
  const printed = new Set<string>();
  const printOnce = (topic: string, text: string) => {
    if (!printed.has(topic)) onStep?.(text);
    printed.add(topic);
  };
  for (;;) {
    signal.throwIfAborted();
    const snapshot = await readSnapshot(api, target);
    const { deployment, pods, autoscaler } = snapshot;
    const { replicas } = deployment.spec;
    const unsettled =
      rolloutProblem(deployment, pods) ?? (replicas === 0 ? "spec.replicas is 0" : undefined);
    const minimum = minReplicas(snapshot) ?? replicas;
    const isScaledUp = scaleDown !== undefined && replicas > minimum;
    if (unsettled === undefined && !isScaledUp) return snapshot;
    if (isScaledUp && autoscaler !== undefined && !printed.has("scale")) {
      const seconds = scaleDownWindow(autoscaler) + scaleMarginSeconds;
      endsMs = performance.now() + seconds * 1_000;
      printOnce(
        "scale",
        `the autoscaler holds ${replicas} pods from an earlier load; waiting up to ${seconds} s for ${minimum}`,
      );
    }
    if (performance.now() > endsMs) {
      if (unsettled !== undefined) throw unsettledError(target, unsettled, pods);
      if (scaleDown === "awaited") {
        onStep?.(`the autoscaler still holds ${replicas} pods: the service is under load`);
        return snapshot;
      }
      throw new UserError(
        `the autoscaler must be at its minimum of ${minimum} pods before the drill, got ${replicas}`,
      );
    }
    if (unsettled !== undefined && !isScaledUp)
      printOnce("settle", `waiting until the Deployment has settled: ${unsettled}`);
    await sleep(pollMs, undefined, { signal });
  }
}

function unsettledError(
  { deployment }: DrillOptions["target"],
  unsettled: string,
  pods: Snapshot["pods"],
): UserError {
  const trouble = pods.map(podProblem).find((it) => it !== undefined);
  return new UserError(
    `Deployment '${deployment}' must have settled before the drill: ${unsettled}${trouble === undefined ? "" : `; ${trouble}`}`,
  );
}

const restored = "the cluster is restored";

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
    run.check(restored, wrong.length === 0, wrong.join("; ") || restoredText(run.before, now));
  } catch (error) {
    run.check(restored, false, messageOf(error));
  }
}

function restoredText(before: Snapshot, now: Snapshot): string {
  const [was, is] = [before.deployment.spec.replicas, now.deployment.spec.replicas];
  const pods = `${is} ${is === 1 ? "pod" : "pods"} of the same template`;
  return is > was ? `${pods}; without load the autoscaler scales down to ${was}` : pods;
}

/** Waits until all pods are ready, and until the autoscaler has removed the pods that it added. */
async function settle(run: DrillRun): Promise<void> {
  const { spec } = run.before.deployment;
  const { autoscaler } = run.before;
  const now = await run.untilSettled("the pods are ready again", deadlineSeconds(run.before));
  if (autoscaler === undefined || now.deployment.spec.replicas <= spec.replicas) return;
  // after an interruption the autoscaler scales down unattended, because that can take minutes
  if (run.options.signal.aborted) return;
  const seconds = scaleDownWindow(autoscaler) + scaleMarginSeconds;
  run.step(
    `the autoscaler has scaled up to ${now.deployment.spec.replicas} pods; waiting up to ${seconds} s until it scales down`,
  );
  await run.until(
    `the autoscaler is back at ${spec.replicas} pods`,
    seconds,
    ({ deployment, pods }) =>
      deployment.spec.replicas <= spec.replicas && rolloutProblem(deployment, pods) === undefined,
  );
}

async function recordOf(drill: DrillName, run: DrillRun, startedAt: Date): Promise<DrillRecord> {
  const { api, target, before } = run;
  // the record is kept even if the API server is unavailable; users of a namespace may not be allowed to list nodes
  const version = await api.get<VersionInfo>("/version").catch(() => undefined);
  const nodes = await api.list<ClusterNode>("/api/v1/nodes").catch(() => []);
  const container = before.deployment.spec.template.spec?.containers[0];
  const status = before.pods[0]?.status?.containerStatuses?.find(
    ({ name }) => name === container?.name,
  );
  return {
    schema: drillRecordSchemaVersion,
    kind: "drill",
    drill,
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
    rejections: run.rejections,
    checks: run.checks,
    passed: run.checks.every(({ passed }) => passed),
  };
}
