import { type ClusterDisruptionBudget, isReady, selects } from "../../artefact/cluster-objects.ts";
import { UserError } from "../../contract/user-error.ts";
import { ApiRejection } from "../cluster/cluster-api.ts";
import type { ClusterDrill, ClusterRun } from "./cluster-run.ts";
import { deadlineSeconds } from "./snapshot.ts";

/** Time until the controller has updated the status of the PDB, in seconds. */
const pdbSeconds = 30;

/** Evicts pods one by one, as `kubectl drain` does: the PDB allows one eviction and rejects the next. */
export const drainDrill: ClusterDrill = {
  name: "drain",
  question:
    "Does the PodDisruptionBudget allow one eviction and reject the next, with no request lost?",
  help: `Evicts pods as 'kubectl drain' does. The PodDisruptionBudget allows the first eviction and rejects the next; the
Deployment replaces the evicted pod.`,
  loadOption: "rate",
  scaleDown: "awaited",

  async prepare(run) {
    const pdb = await pdbOf(run);
    const { deployment: name } = run.target;
    if (pdb === undefined) {
      throw new UserError(`Deployment '${name}' must have a PodDisruptionBudget, got none`);
    }
    if (run.before.pods.length < 2) {
      throw new UserError(
        `Deployment '${name}' must have 2 pods or more, so that one can be evicted, got ${run.before.pods.length}`,
      );
    }
    // the controller updates the status of the PDB with a delay
    await run
      .until(
        `PDB '${pdb.metadata.name}' allows an eviction`,
        pdbSeconds,
        async () => ((await pdbOf(run))?.status?.disruptionsAllowed ?? 0) > 0,
      )
      .catch(async () => {
        run.signal.throwIfAborted();
        throw new UserError(
          `PDB '${pdb.metadata.name}' must allow an eviction: ${pdbText(await pdbOf(run))}`,
        );
      });
  },

  phases: [
    {
      name: "evictions",
      load: ({ ratePerSecond }) => ({ kind: "fixed rate", ratePerSecond }),
      leadSeconds: 3,
      act: evictAll,
    },
  ],
  // no `restore`: the Deployment replaces the evicted pod
};

async function evictAll(run: ClusterRun): Promise<void> {
  const { pods } = await run.observe();
  const pdb = await pdbOf(run);
  run.step(`PDB '${pdb?.metadata.name}': ${pdbText(pdb)}`);
  let allowed = 0;
  let rejection: ApiRejection | undefined;
  for (const pod of pods.filter(isReady)) {
    rejection = await evict(run, pod.metadata.name);
    if (rejection !== undefined) break;
    allowed++;
  }
  run.check("the PDB allows an eviction", allowed > 0, `${allowed} of ${pods.length} pods evicted`);
  run.check(
    "the PDB rejects the next eviction",
    rejection?.status === 429,
    rejection === undefined
      ? "every pod was evicted"
      : `status ${rejection.status}: ${rejection.message}`,
  );
  const began = performance.now();
  await run.untilSettled("the evicted pod is replaced", deadlineSeconds(run.before));
  run.step(
    `${run.before.pods.length} pods are ready again after ${((performance.now() - began) / 1_000).toFixed(1)} s`,
  );
}

/** Evicts a pod, and returns the API server's rejection, if any. */
async function evict(run: ClusterRun, pod: string): Promise<ApiRejection | undefined> {
  const { namespace } = run.target;
  run.signal.throwIfAborted();
  try {
    await run.post(`${run.path("v1", "pods", pod)}/eviction`, {
      apiVersion: "policy/v1",
      kind: "Eviction",
      metadata: { name: pod, namespace },
    });
    run.step(`eviction of ${pod}: allowed`);
    return undefined;
  } catch (error) {
    if (!(error instanceof ApiRejection)) throw error;
    run.recordRejection(`eviction of ${pod}`, error);
    return error;
  }
}

async function pdbOf(run: ClusterRun): Promise<ClusterDisruptionBudget | undefined> {
  const pdbs = await run.api.list<ClusterDisruptionBudget>(
    run.path("policy/v1", "poddisruptionbudgets"),
  );
  const labels = run.before.pods[0]?.metadata.labels;
  return pdbs.find(({ spec }) => selects(spec.selector?.matchLabels, labels));
}

function pdbText(pdb: ClusterDisruptionBudget | undefined): string {
  if (pdb === undefined) return "it was deleted";
  const { currentHealthy = 0, desiredHealthy = 0, disruptionsAllowed = 0 } = pdb.status ?? {};
  return `${currentHealthy} pods healthy, ${desiredHealthy} required, ${disruptionsAllowed} disruptions allowed`;
}
