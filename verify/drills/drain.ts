import { type ClusterDisruptionBudget, isReady, selects } from "../../artefact/cluster-objects.ts";
import { UserError } from "../../contract/user-error.ts";
import { ApiRejection } from "../cluster/cluster-api.ts";
import type { Drill, DrillRun } from "./drill.ts";
import { deadlineSeconds } from "./snapshot.ts";

const budgetSeconds = 30;

/** What `kubectl drain` asks for each pod, one after the other: the budget allows one and refuses the next. */
export const drainDrill: Drill = {
  name: "drain",
  scaleDown: "awaited",

  async prepare(run) {
    const budget = await budgetOf(run);
    const { deployment: name } = run.target;
    if (budget === undefined) throw new UserError(`Deployment '${name}' has no disruption budget`);
    if (run.before.pods.length < 2) {
      throw new UserError(
        `Deployment '${name}' must have 2 pods or more, so that one can be evicted, got ${run.before.pods.length}`,
      );
    }
    // the budget is counted by a controller, a moment after the pods
    await run
      .until(
        "",
        budgetSeconds,
        async () => ((await budgetOf(run))?.status?.disruptionsAllowed ?? 0) > 0,
      )
      .catch(async () => {
        run.signal.throwIfAborted();
        throw new UserError(
          `budget '${budget.metadata.name}' allows no eviction: ${budgetText(await budgetOf(run))}`,
        );
      });
  },

  phases: [
    {
      name: "evictions",
      load: ({ ratePerSecond }) => ({ kind: "fixed rate", ratePerSecond }),
      calmSeconds: 3,
      act: evictAll,
    },
  ],
  // nothing to restore: the Deployment replaces a pod that was evicted, which is waited for anyway
};

async function evictAll(run: DrillRun): Promise<void> {
  const { pods } = await run.observe();
  const budget = await budgetOf(run);
  run.step(`budget '${budget?.metadata.name}': ${budgetText(budget)}`);
  let allowed = 0;
  let refusal: ApiRejection | undefined;
  for (const pod of pods.filter(isReady)) {
    refusal = await evict(run, pod.metadata.name);
    if (refusal !== undefined) break;
    allowed++;
  }
  run.check(
    "the budget allows an eviction",
    allowed > 0,
    `${allowed} of ${pods.length} pods evicted`,
  );
  run.check(
    "the budget refuses the next eviction",
    refusal?.status === 429,
    refusal === undefined
      ? "every pod could be evicted"
      : `status ${refusal.status}: ${refusal.message}`,
  );
  const began = performance.now();
  await run.untilSettled("a pod takes the place of the evicted one", deadlineSeconds(run.before));
  run.step(
    `${run.before.pods.length} pods are ready again after ${((performance.now() - began) / 1_000).toFixed(1)} s`,
  );
}

/** @returns Why it was refused; nothing when it was allowed. */
async function evict(run: DrillRun, pod: string): Promise<ApiRejection | undefined> {
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
    run.reject(`eviction of ${pod}`, error);
    return error;
  }
}

async function budgetOf(run: DrillRun): Promise<ClusterDisruptionBudget | undefined> {
  const budgets = await run.api.list<ClusterDisruptionBudget>(
    run.path("policy/v1", "poddisruptionbudgets"),
  );
  const labels = run.before.pods[0]?.metadata.labels;
  return budgets.find(({ spec }) => selects(spec.selector?.matchLabels, labels));
}

function budgetText(budget: ClusterDisruptionBudget | undefined): string {
  if (budget === undefined) return "it is gone";
  const { currentHealthy = 0, desiredHealthy = 0, disruptionsAllowed = 0 } = budget.status ?? {};
  return `${currentHealthy} pods are healthy, ${desiredHealthy} must stay, ${disruptionsAllowed} may go`;
}
