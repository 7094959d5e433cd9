import { isDeepStrictEqual } from "node:util";
import {
  type ClusterDeployment,
  type ClusterPod,
  podProblem,
  rolloutProblem,
} from "../../artefact/cluster-objects.ts";
import { templateHashLabel } from "../../contract/pods.ts";
import type { ClusterDrill, ClusterRun } from "./cluster-run.ts";
import { deadlineSeconds, type Snapshot } from "./snapshot.ts";

/** Tag that does not exist in any registry; `imagePullPolicy: Never` prevents a pull. */
const badTag = "clipstack-no-such-image";

/** Observation of the blocked rollout, in seconds. */
const blockedSeconds = 10;
/** Time until the kubelet reports the missing image, in seconds. */
const badPodSeconds = 60;

/** Revisions that the drill creates. The history limit is raised by as many, so that no earlier revision is deleted. */
const createdRevisions = 2;

/**
 * A rollout blocked by a missing image, then a rolling update and a rollback, all under load. The order matters, because the next
 * `kubectl rollout undo` goes to the revision before the last one.
 */
export const rolloutDrill: ClusterDrill = {
  name: "rollout",
  question:
    "Is every request answered while pods are replaced, and does a bad image stop the rollout?",
  help: `Under load: rolls out a missing image, which must block the rollout while the old pods serve; then restarts every
pod, and rolls back. Existing revisions remain available for a rollback.`,
  loadOption: "rate",
  scaleDown: "awaited",

  phases: [
    {
      name: "bad image",
      load: ({ ratePerSecond }) => ({ kind: "fixed rate", ratePerSecond }),
      leadSeconds: 3,
      async act(run) {
        await observeBlockedRollout(run, await breakImage(run));
        await undo(run);
        run.step("rollback to the previous revision");
        await run.untilSettled("the rollback is complete", deadlineSeconds(run.before));
      },
    },
    {
      name: "restart",
      async act(run) {
        run.step("rolling update: every pod is replaced");
        await observeRollout(run, "restart", () => restart(run));
      },
    },
    {
      name: "undo",
      async act(run) {
        run.step("rollback to the previous revision");
        await observeRollout(run, "undo", () => undo(run));
      },
    },
  ],

  async restore(run) {
    const { deployment } = await run.observe();
    const { template } = run.before.deployment.spec;
    if (isDeepStrictEqual(deployment.spec.template, template)) return;
    await replace(run, "/spec/template", template);
    run.step("pod template restored");
  },

  async cleanUp(run) {
    const { deployment, replicaSets } = await run.observe();
    const earlier = new Set(run.before.replicaSets.map(({ metadata }) => metadata.uid));
    for (const { metadata, spec, status } of replicaSets) {
      const pods = Math.max(spec.replicas ?? 0, status?.replicas ?? 0);
      if (earlier.has(metadata.uid) || pods > 0) continue;
      await run.api.delete(run.path("apps/v1", "replicasets", metadata.name));
      run.step(`deleted ${metadata.name}, a revision of this drill`);
    }
    const { revisionHistoryLimit: limit } = run.before.deployment.spec;
    if (deployment.spec.revisionHistoryLimit !== limit) {
      await replace(run, "/spec/revisionHistoryLimit", limit);
    }
    await restoreFieldOwners(run);
  },
};

const revisionAnnotation = "deployment.kubernetes.io/revision";

async function restart(run: ClusterRun): Promise<void> {
  const annotations = { "kubectl.kubernetes.io/restartedAt": new Date().toISOString() };
  await run.patch("strategic-merge", { spec: { template: { metadata: { annotations } } } });
}

/** Rolls back to the template of the previous revision, as `kubectl rollout undo` does. */
async function undo(run: ClusterRun): Promise<void> {
  const { replicaSets } = await run.observe();
  const revisionOf = ({ metadata }: (typeof replicaSets)[number]) =>
    Number(metadata.annotations?.[revisionAnnotation] ?? 0);
  const [, previous] = [...replicaSets].sort((a, b) => revisionOf(b) - revisionOf(a));
  const template = structuredClone(previous?.spec.template);
  if (template === undefined) throw new Error("the Deployment has no revision to roll back to");
  const labels: Record<string, string> = { ...template.metadata?.labels };
  delete labels[templateHashLabel];
  await replace(run, "/spec/template", {
    ...template,
    metadata: { ...template.metadata, labels },
  });
}

/**
 * Restores the owners of the Deployment's fields. A patch takes over the fields that it sets, and the next server-side apply would
 * conflict. Owners of subresources (status, scale) are kept as they are now, because controllers update them concurrently.
 */
async function restoreFieldOwners(run: ClusterRun): Promise<void> {
  const { deployment } = await run.observe();
  const { managedFields = [] } = deployment.metadata;
  const { managedFields: before = [] } = run.before.deployment.metadata;
  const owned = [
    ...before.filter((it) => it.subresource === undefined),
    ...managedFields.filter((it) => it.subresource !== undefined),
  ];
  if (owned.length === 0 || isDeepStrictEqual(new Set(managedFields), new Set(owned))) return;
  await replace(run, "/metadata/managedFields", owned);
}

async function replace(run: ClusterRun, path: string, value: unknown): Promise<void> {
  await run.patch("json", [{ op: "replace", path, value }]);
}

/** Returns the lowest number of ready pods since the replica count `from`, and the number that the update strategy requires. */
function readySince(run: ClusterRun, from: number): { lowest: number; required: number } {
  const points = run.replicas.slice(Math.max(0, from));
  // the autoscaler may have scaled down in between
  const desired = Math.min(...points.map((point) => point.desired));
  return {
    lowest: Math.min(...points.map(({ ready }) => ready)),
    // without a ready pod the service is down
    required: Math.max(1, desired - maxUnavailablePods(run.before.deployment.spec, desired)),
  };
}

/** Waits until a rolling update is complete, and checks how many pods stayed ready. */
async function observeRollout(
  run: ClusterRun,
  phase: string,
  change: () => Promise<unknown>,
): Promise<void> {
  const { pods: oldPods } = await run.observe();
  const uids = new Set(oldPods.map(({ metadata }) => metadata.uid));
  const began = performance.now();
  await change();
  const from = run.replicas.length - 1;
  const { pods: newPods } = await run.until(
    `${phase}: every pod is replaced`,
    deadlineSeconds(run.before),
    ({ deployment, pods }) =>
      pods.every(({ metadata }) => !uids.has(metadata.uid)) &&
      rolloutProblem(deployment, pods) === undefined,
  );
  const seconds = (performance.now() - began) / 1_000;
  const { lowest, required } = readySince(run, from);
  run.check(
    `pods stay ready: ${phase}`,
    lowest >= required,
    `${newPods.length} ${newPods.length === 1 ? "pod" : "pods"} replaced in ${seconds.toFixed(1)} s, at least ${lowest} ready throughout, must be ${required}`,
  );
}

/** Number of pods that may be unavailable during a rolling update, as Kubernetes computes it. */
export function maxUnavailablePods(
  { strategy }: Pick<ClusterDeployment["spec"], "strategy">,
  replicas: number,
): number {
  const update = strategy?.rollingUpdate;
  if (update === undefined) return 0;
  const { maxUnavailable = "25%", maxSurge = "25%" } = update;
  const unavailable = podCount(maxUnavailable, replicas, Math.floor);
  // with both at 0 a rollout could not start
  return unavailable === 0 && podCount(maxSurge, replicas, Math.ceil) === 0 ? 1 : unavailable;
}

function podCount(value: number | string, replicas: number, round: (value: number) => number) {
  const percent = /^(\d+)%$/.exec(String(value))?.[1];
  return percent === undefined ? Number(value) : round((Number(percent) * replicas) / 100);
}

/** Starts a rolling update to an image that does not exist, and returns its name. */
async function breakImage(run: ClusterRun): Promise<string> {
  const { revisionHistoryLimit, template } = run.before.deployment.spec;
  const container = template.spec?.containers[0];
  if (container?.image === undefined) throw new Error("the pod template has no container");
  const { name } = container;
  const image = withTag(container.image, badTag);
  await run.patch("strategic-merge", {
    spec: {
      revisionHistoryLimit: revisionHistoryLimit + createdRevisions,
      template: { spec: { containers: [{ name, image, imagePullPolicy: "Never" }] } },
    },
  });
  run.step(`rolling update to a missing image: ${image}`);
  return image;
}

function imageError(pod: ClusterPod): string | undefined {
  const isWaiting = pod.status?.containerStatuses?.some(({ state }) =>
    /Image/.test(state?.waiting?.reason ?? ""),
  );
  return isWaiting ? podProblem(pod) : undefined;
}

/** Checks that the rollout is blocked while the old pods serve. */
async function observeBlockedRollout(run: ClusterRun, image: string): Promise<void> {
  const from = run.replicas.length - 1;
  // other pods may fail for other reasons
  const badPodError = ({ pods }: Snapshot) =>
    pods
      .filter(({ spec }) => spec.containers.some((it) => it.image === image))
      .map(imageError)
      .find((it) => it !== undefined);
  const snapshot = await run.until(
    "a pod with the bad image fails",
    badPodSeconds,
    (now) => badPodError(now) !== undefined,
  );
  run.step(badPodError(snapshot) ?? "");
  await run.watch(blockedSeconds);
  const { deployment } = await run.observe();
  const { lowest, required } = readySince(run, from);
  run.check(
    "a bad image stops the rollout while the old pods serve",
    lowest >= required,
    `at least ${lowest} of ${deployment.spec.replicas} pods ready throughout, must be ${required}`,
  );
}

/** Image name with another tag and without a digest. */
export function withTag(image: string, tag: string): string {
  const name = image.replace(/@.*$/, "").replace(/:[^:/]*$/, "");
  return `${name}:${tag}`;
}
