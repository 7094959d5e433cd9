import { isReady, metricText, unrest } from "../../bench/src/cluster-objects.ts";
import { defaultConcurrency, type ExerciseBody, type ExerciseRun } from "./k8s-exercise.ts";
import { UserError } from "./user-error.ts";

const up = "the way up";
const down = "the way down";

/** A metrics server that has just started needs more than a minute. */
const metricSeconds = 100;
/** Until the autoscaler has acted and what it asked for is ready. */
const upSeconds = 240;
/** Beyond the autoscaler's own window: its period, the metrics' age and the pods' own end. */
const downMarginSeconds = 120;
/** While pods go, requests must still be answered, and must not keep them. */
const downRatePerSecond = 0.5;

/** Load until the autoscaler adds pods, then next to none until they are gone. */
export const scaleExercise: ExerciseBody = {
  exercise: "scale",

  async prepare(run) {
    const { autoscaler } = run.before;
    const { deployment: name, namespace } = run.target;
    if (autoscaler === undefined) {
      throw new UserError(`Deployment '${name}' has no autoscaler in namespace '${namespace}'`);
    }
    const { minReplicas, maxReplicas, behavior } = autoscaler.spec;
    if (minReplicas >= maxReplicas) {
      throw new UserError(
        `autoscaler '${autoscaler.metadata.name}' has nowhere to go: minReplicas is ${minReplicas}, maxReplicas ${maxReplicas}`,
      );
    }
    await withMetric(run, autoscaler.metadata.name);
    if (run.before.deployment.spec.replicas <= minReplicas) return;
    const seconds = behavior.scaleDown.stabilizationWindowSeconds + downMarginSeconds;
    run.step(
      `${run.before.deployment.spec.replicas} pods are there from an earlier load; waiting for ${minReplicas}, up to ${seconds} s`,
    );
    await run
      .until("", seconds, ({ deployment }) => deployment.spec.replicas <= minReplicas)
      .catch((error: unknown) => {
        run.signal.throwIfAborted();
        throw new UserError(
          `the autoscaler must be at its minimum of ${minReplicas} pods first${error instanceof Error ? `${error.message}` : ""}`,
        );
      });
  },

  async act(run) {
    const autoscaler = run.before.autoscaler;
    if (autoscaler === undefined) return;
    const { minReplicas, behavior } = autoscaler.spec;
    await run.load({
      kind: "closed loop",
      concurrency: run.options.concurrency ?? defaultConcurrency,
    });
    run.phase(up);
    const began = performance.now();
    let acted: number | undefined;
    const high = await run.until(
      "the autoscaler adds pods, and they are ready",
      upSeconds,
      ({ deployment, pods, autoscaler: now }) => {
        if (acted === undefined && deployment.spec.replicas > minReplicas) {
          acted = (performance.now() - began) / 1_000;
          const seen = now === undefined ? undefined : metricText(now);
          run.step(
            `the autoscaler asks for ${deployment.spec.replicas} pods${seen === undefined ? "" : ` at ${seen}`}`,
          );
        }
        return acted !== undefined && pods.filter(isReady).length > minReplicas;
      },
    );
    const readySeconds = (performance.now() - began) / 1_000;
    run.check(
      "the autoscaler adds pods under load",
      true,
      `from ${minReplicas} to ${high.deployment.spec.replicas}, asked after ${acted?.toFixed(0)} s, the first ready after ${readySeconds.toFixed(0)} s`,
    );

    run.phase(down);
    await run.load({ kind: "fixed rate", ratePerSecond: downRatePerSecond });
    const quietMs = performance.now();
    const window = behavior.scaleDown.stabilizationWindowSeconds;
    run.step(`waiting for ${minReplicas} pods: the load must be low for ${window} s`);
    await run.until(
      `the autoscaler is back at ${minReplicas} pods`,
      window + downMarginSeconds,
      ({ deployment, pods }) =>
        deployment.spec.replicas === minReplicas && unrest(deployment, pods) === undefined,
    );
    const most = Math.max(...run.replicas.map(({ wanted }) => wanted));
    run.check(
      "the autoscaler takes them away afterwards",
      true,
      `from ${most} to ${minReplicas} in ${((performance.now() - quietMs) / 1_000).toFixed(0)} s, its window is ${window} s`,
    );
    await run.endLoad();
    for (const phase of [up, down]) run.checkAnswered(phase);
  },

  // nothing was changed: without load the autoscaler goes back by itself
  async restore() {},
};

/** Wait until the autoscaler sees a metric. */
async function withMetric(run: ExerciseRun, name: string): Promise<void> {
  const seen = await run.look();
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
      const { autoscaler } = await run.look();
      const said = autoscaler?.status.conditions.find(({ status }) => status === "False")?.message;
      throw new UserError(
        `autoscaler '${name}' has no metric after ${metricSeconds} s: ${said ?? (error instanceof Error ? error.message : String(error))}`,
      );
    });
}
