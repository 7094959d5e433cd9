import {
  describeMetric,
  isReady,
  rolloutProblem,
  scaleDownWindow,
} from "../../artefact/cluster-objects.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { type ClusterDrill, type ClusterRun, scaleMarginSeconds } from "./cluster-run.ts";
import { minReplicas } from "./snapshot.ts";

/** Time until the autoscaler has a metric; a new metrics server takes more than a minute. */
const metricSeconds = 100;
/** Time until the autoscaler has scaled up and a new pod is ready. */
const upSeconds = 240;
/** Rate during scale-down: low enough for the autoscaler to remove pods, and every request must still be answered. */
const downRatePerSecond = 0.5;

/** Load until the autoscaler adds pods, then a low rate until it has removed them. */
export const scaleDrill: ClusterDrill = {
  name: "scale",
  question: "Does the autoscaler add pods under load, and remove them afterwards?",
  help: `Sends requests until the autoscaler has added a pod that is ready, then a low rate until it is back at its
minimum. Takes the scale-down window of the autoscaler (180 s in kind-local) and one or two minutes.`,
  loadOption: "concurrency",
  scaleDown: "required",

  async prepare(run) {
    const { autoscaler } = run.before;
    const { deployment: name, namespace } = run.target;
    if (autoscaler === undefined) {
      throw new UserError(`Deployment '${name}' has no autoscaler in namespace '${namespace}'`);
    }
    const minimum = minReplicas(run.before) ?? 1;
    if (minimum >= autoscaler.spec.maxReplicas) {
      throw new UserError(
        `autoscaler '${autoscaler.metadata.name}': maxReplicas must exceed minReplicas (${minimum}), got ${autoscaler.spec.maxReplicas}`,
      );
    }
    await waitForMetric(run, autoscaler.metadata.name);
  },

  phases: [
    {
      name: "scale-up",
      load: ({ concurrency }) => ({ kind: "closed loop", concurrency }),
      act: scaleUp,
    },
    {
      name: "scale-down",
      load: () => ({ kind: "fixed rate", ratePerSecond: downRatePerSecond }),
      act: scaleDown,
    },
  ],
};

async function scaleUp(run: ClusterRun): Promise<void> {
  const minimum = minReplicas(run.before) ?? 1;
  const began = performance.now();
  let scaledSeconds: number | undefined;
  const scaled = await run.until(
    "the autoscaler adds a pod that becomes ready",
    upSeconds,
    ({ deployment, pods, autoscaler }) => {
      if (scaledSeconds === undefined && deployment.spec.replicas > minimum) {
        scaledSeconds = (performance.now() - began) / 1_000;
        const metric = autoscaler && describeMetric(autoscaler);
        run.step(
          `the autoscaler scales to ${deployment.spec.replicas} pods${metric === undefined ? "" : ` at ${metric}`}`,
        );
      }
      return scaledSeconds !== undefined && pods.filter(isReady).length > minimum;
    },
  );
  const readySeconds = (performance.now() - began) / 1_000;
  run.check(
    "the autoscaler adds pods under load",
    true,
    `from ${minimum} to ${scaled.deployment.spec.replicas}, scaled after ${scaledSeconds?.toFixed(0)} s, first pod ready after ${readySeconds.toFixed(0)} s`,
  );
}

async function scaleDown(run: ClusterRun): Promise<void> {
  const { autoscaler } = run.before;
  if (autoscaler === undefined) return;
  const minimum = minReplicas(run.before) ?? 1;
  const window = scaleDownWindow(autoscaler);
  const quietMs = performance.now();
  run.step(`waiting for ${minimum} pods: the scale-down window is ${window} s`);
  await run.until(
    `the autoscaler is back at ${minimum} pods`,
    window + scaleMarginSeconds,
    ({ deployment, pods }) =>
      deployment.spec.replicas === minimum && rolloutProblem(deployment, pods) === undefined,
  );
  const maximum = Math.max(...run.replicas.map(({ desired }) => desired));
  run.check(
    "the autoscaler removes them afterwards",
    true,
    `from ${maximum} to ${minimum} in ${((performance.now() - quietMs) / 1_000).toFixed(0)} s, with a window of ${window} s`,
  );
}

async function waitForMetric(run: ClusterRun, name: string): Promise<void> {
  const { autoscaler } = await run.observe();
  if (autoscaler !== undefined && describeMetric(autoscaler) !== undefined) return;
  run.step(`waiting until autoscaler '${name}' has a metric`);
  await run
    .until(
      `autoscaler '${name}' has a metric`,
      metricSeconds,
      ({ autoscaler }) => autoscaler !== undefined && describeMetric(autoscaler) !== undefined,
    )
    .catch(async (error: unknown) => {
      run.signal.throwIfAborted();
      const { autoscaler } = await run.observe();
      const failure = autoscaler?.status?.conditions?.find(({ status }) => status === "False");
      throw new UserError(
        `autoscaler '${name}' has no metric after ${metricSeconds} s: ${failure?.message ?? messageOf(error)}`,
      );
    });
}
