import { setTimeout as sleep } from "node:timers/promises";
import { podProblem, rolloutProblem, scaleDownWindow } from "../../artefact/cluster-objects.ts";
import { UserError } from "../../contract/user-error.ts";
import { type ClusterApi, openCluster } from "../cluster/cluster-api.ts";
import {
  type ClusterDrill,
  type ClusterDrillOptions,
  ClusterRun,
  scaleMarginSeconds,
} from "./cluster-run.ts";
import { pollMs } from "./drill.ts";
import type { DrillRecord } from "./drill-record.ts";
import { runDrill } from "./run-drill.ts";
import { minReplicas, readSnapshot, type Snapshot } from "./snapshot.ts";

/** Time that the Deployment has to settle before the drill. */
const settleSeconds = 30;

/** Runs a drill on a Deployment, and restores the cluster, as {@link runDrill} does. */
export function runClusterDrill(
  drill: ClusterDrill,
  options: ClusterDrillOptions,
): Promise<DrillRecord> {
  return runDrill(drill, options, async () => {
    // without `signal`, because an interruption must not abort the requests that restore the cluster
    const api = await openCluster(options.target.access);
    try {
      return new ClusterRun(api, options, await settledSnapshot(api, drill, options));
    } catch (error) {
      await api.close();
      throw error;
    }
  });
}

/** Waits until the Deployment has settled, with no more pods than the drill may start with. */
async function settledSnapshot(
  api: ClusterApi,
  { scaleDown }: ClusterDrill,
  { target, signal, onStep }: ClusterDrillOptions,
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
  { deployment }: ClusterDrillOptions["target"],
  unsettled: string,
  pods: Snapshot["pods"],
): UserError {
  const trouble = pods.map(podProblem).find((it) => it !== undefined);
  return new UserError(
    `Deployment '${deployment}' must have settled before the drill: ${unsettled}${trouble === undefined ? "" : `; ${trouble}`}`,
  );
}
