import { isReady, metricText, scaleDownWindow, unrest } from "../../artefact/cluster-objects.ts";
import { UserError } from "../../contract/user-error.ts";
import { type Drill, type DrillRun, scaleMarginSeconds } from "./drill.ts";
import { minReplicas } from "./snapshot.ts";

/** A metrics server that has just started needs more than a minute. */
const metricSeconds = 100;
/** Until the autoscaler has acted and what it asked for is ready. */
const upSeconds = 240;
/** While pods go, requests must still be answered, and must not keep them. */
const downRatePerSecond = 0.5;

/** Load until the autoscaler adds pods, then next to none until they are gone. */
export const scaleDrill: Drill = {
  name: "scale",
  scaleDown: "required",

  async prepare(run) {
    const { autoscaler } = run.before;
    const { deployment: name, namespace } = run.target;
    if (autoscaler === undefined) {
      throw new UserError(`Deployment '${name}' has no autoscaler in namespace '${namespace}'`);
    }
    const least = minReplicas(run.before) ?? 1;
    if (least >= autoscaler.spec.maxReplicas) {
      throw new UserError(
        `autoscaler '${autoscaler.metadata.name}' has nowhere to go: minReplicas is ${least}, maxReplicas ${autoscaler.spec.maxReplicas}`,
      );
    }
    await withMetric(run, autoscaler.metadata.name);
  },

  phases: [
    {
      name: "the way up",
      load: ({ concurrency }) => ({ kind: "closed loop", concurrency }),
      act: scaleUp,
    },
    {
      name: "the way down",
      load: () => ({ kind: "fixed rate", ratePerSecond: downRatePerSecond }),
      act: scaleDown,
    },
  ],
};

async function scaleUp(run: DrillRun): Promise<void> {
  const least = minReplicas(run.before) ?? 1;
  const began = performance.now();
  let acted: number | undefined;
  const high = await run.until(
    "the autoscaler adds pods, and they are ready",
    upSeconds,
    ({ deployment, pods, autoscaler }) => {
      if (acted === undefined && deployment.spec.replicas > least) {
        acted = (performance.now() - began) / 1_000;
        const seen = autoscaler && metricText(autoscaler);
        run.step(
          `the autoscaler asks for ${deployment.spec.replicas} pods${seen === undefined ? "" : ` at ${seen}`}`,
        );
      }
      return acted !== undefined && pods.filter(isReady).length > least;
    },
  );
  const readySeconds = (performance.now() - began) / 1_000;
  run.check(
    "the autoscaler adds pods under load",
    true,
    `from ${least} to ${high.deployment.spec.replicas}, asked after ${acted?.toFixed(0)} s, the first ready after ${readySeconds.toFixed(0)} s`,
  );
}

async function scaleDown(run: DrillRun): Promise<void> {
  const { autoscaler } = run.before;
  if (autoscaler === undefined) return;
  const least = minReplicas(run.before) ?? 1;
  const window = scaleDownWindow(autoscaler);
  const quietMs = performance.now();
  run.step(`waiting for ${least} pods: the load must be low for ${window} s`);
  await run.until(
    `the autoscaler is back at ${least} pods`,
    window + scaleMarginSeconds,
    ({ deployment, pods }) =>
      deployment.spec.replicas === least && unrest(deployment, pods) === undefined,
  );
  const most = Math.max(...run.replicas.map(({ wanted }) => wanted));
  run.check(
    "the autoscaler takes them away afterwards",
    true,
    `from ${most} to ${least} in ${((performance.now() - quietMs) / 1_000).toFixed(0)} s, its window is ${window} s`,
  );
}

/** Wait until the autoscaler sees a metric. */
async function withMetric(run: DrillRun, name: string): Promise<void> {
  const seen = await run.observe();
  if (seen.autoscaler !== undefined && metricText(seen.autoscaler) !== undefined) return;
  run.step(`waiting until autoscaler '${name}' has a metric`);
  await run
    .until(
      "",
      metricSeconds,
      ({ autoscaler }) => autoscaler !== undefined && metricText(autoscaler) !== undefined,
    )
    .catch(async (error: unknown) => {
      run.signal.throwIfAborted();
      const { autoscaler } = await run.observe();
      const said = autoscaler?.status?.conditions?.find(({ status }) => status === "False");
      throw new UserError(
        `autoscaler '${name}' has no metric after ${metricSeconds} s: ${said?.message ?? (error instanceof Error ? error.message : String(error))}`,
      );
    });
}
