import { isDeepStrictEqual } from "node:util";
import {
  type ClusterDeployment,
  type ClusterPod,
  podTrouble,
  unrest,
} from "../../artefact/cluster-objects.ts";
import { templateHashLabel } from "../../contract/pods.ts";
import type { Drill, DrillRun } from "./drill.ts";
import { deadlineSeconds, type Snapshot } from "./snapshot.ts";

/** No registry has it, and nobody is asked for it. */
const badTag = "clipstack-no-such-image";

/** While a bad rollout stands still, in seconds. */
const holdSeconds = 10;
/** The kubelet says at once that an image is not there. */
const badPodSeconds = 60;

/** Versions that the drill makes: nothing of the user's may be dropped for them. */
const madeVersions = 2;

/**
 * A rollout that an image stops, then a rolling update and the way back, all under load. In this order, since the version
 * before the last one is what the next `kubectl rollout undo` goes to.
 */
export const rolloutDrill: Drill = {
  name: "rollout",
  scaleDown: "awaited",

  phases: [
    {
      name: "bad image",
      load: ({ ratePerSecond }) => ({ kind: "fixed rate", ratePerSecond }),
      calmSeconds: 3,
      async act(run) {
        await holds(run, await breakImage(run));
        await undo(run);
        run.step("rollback to the version before");
        await run.untilSettled("the rollback is done", deadlineSeconds(run.before));
      },
    },
    {
      name: "restart",
      async act(run) {
        run.step("rolling update: every pod is replaced");
        await replaces(run, "restart", () => restart(run));
      },
    },
    {
      name: "undo",
      async act(run) {
        run.step("rollback to the version before");
        await replaces(run, "undo", () => undo(run));
      },
    },
  ],

  async restore(run) {
    const { deployment } = await run.observe();
    const { template } = run.before.deployment.spec;
    if (isDeepStrictEqual(deployment.spec.template, template)) return;
    await replace(run, "/spec/template", template);
    run.step("the pod template is put back");
  },

  async cleanUp(run) {
    const { deployment, replicaSets } = await run.observe();
    const there = new Set(run.before.replicaSets.map(({ metadata }) => metadata.uid));
    for (const { metadata, spec, status } of replicaSets) {
      const pods = Math.max(spec.replicas ?? 0, status?.replicas ?? 0);
      if (there.has(metadata.uid) || pods > 0) continue;
      await run.api.delete(run.path("apps/v1", "replicasets", metadata.name));
      run.step(`${metadata.name}, a version of this exercise, is deleted`);
    }
    const { revisionHistoryLimit: limit } = run.before.deployment.spec;
    if (deployment.spec.revisionHistoryLimit !== limit) {
      await replace(run, "/spec/revisionHistoryLimit", limit);
    }
    await giveFieldsBack(run);
  },
};

const revisionAnnotation = "deployment.kubernetes.io/revision";

/** Restarts a rollout, as `kubectl rollout restart` does. */
async function restart(run: DrillRun): Promise<void> {
  const annotations = { "kubectl.kubernetes.io/restartedAt": new Date().toISOString() };
  await run.patch("strategic-merge", { spec: { template: { metadata: { annotations } } } });
}

/** Rolls back to the template of the previous revision, as `kubectl rollout undo` does. */
async function undo(run: DrillRun): Promise<void> {
  const { replicaSets } = await run.observe();
  const revisionOf = ({ metadata }: (typeof replicaSets)[number]) =>
    Number(metadata.annotations?.[revisionAnnotation] ?? 0);
  const [, previous] = [...replicaSets].sort((a, b) => revisionOf(b) - revisionOf(a));
  const template = structuredClone(previous?.spec.template);
  if (template === undefined) throw new Error("there is no version to roll back to");
  const labels: Record<string, string> = { ...template.metadata?.labels };
  delete labels[templateHashLabel];
  await replace(run, "/spec/template", {
    ...template,
    metadata: { ...template.metadata, labels },
  });
}

/**
 * A patch takes the fields that it sets over from whoever had applied them, and the next server-side apply would conflict.
 * Fields of the status and of an autoscaler are left to those who write them meanwhile.
 */
async function giveFieldsBack(run: DrillRun): Promise<void> {
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

async function replace(run: DrillRun, path: string, value: unknown): Promise<void> {
  await run.patch("json", [{ op: "replace", path, value }]);
}

/** The fewest pods that were ready since some point, and that had to be: an autoscaler may ask for fewer meanwhile. */
function readySince(run: DrillRun, from: number): { least: number; needed: number } {
  const points = run.replicas.slice(Math.max(0, from));
  const wanted = Math.min(...points.map((point) => point.wanted));
  return {
    least: Math.min(...points.map(({ ready }) => ready)),
    // one at least, or nobody serves
    needed: Math.max(1, wanted - mayBeAway(run.before.deployment.spec, wanted)),
  };
}

/** A rolling update, to its end. Says how many pods are new, and how few there ever were. */
async function replaces(
  run: DrillRun,
  phase: string,
  change: () => Promise<unknown>,
): Promise<void> {
  const old = await run.observe();
  const uids = new Set(old.pods.map(({ metadata }) => metadata.uid));
  const began = performance.now();
  await change();
  const from = run.replicas.length - 1;
  const done = await run.until(
    `${phase}: every pod is replaced`,
    deadlineSeconds(run.before),
    ({ deployment, pods }) =>
      pods.every(({ metadata }) => !uids.has(metadata.uid)) &&
      unrest(deployment, pods) === undefined,
  );
  const seconds = (performance.now() - began) / 1_000;
  const { least, needed } = readySince(run, from);
  run.check(
    `pods stay ready: ${phase}`,
    least >= needed,
    `${done.pods.length} ${done.pods.length === 1 ? "pod" : "pods"} replaced in ${seconds.toFixed(1)} s, never fewer than ${least} ready`,
  );
}

/** Pods that a rolling update may take away before their successors are ready, as Kubernetes counts them. */
export function mayBeAway(
  { strategy }: Pick<ClusterDeployment["spec"], "strategy">,
  replicas: number,
): number {
  const update = strategy?.rollingUpdate;
  if (update === undefined) return 0;
  const { maxUnavailable = "25%", maxSurge = "25%" } = update;
  const away = podsOf(maxUnavailable, replicas, Math.floor);
  // with neither, a rollout could not begin
  return away === 0 && podsOf(maxSurge, replicas, Math.ceil) === 0 ? 1 : away;
}

function podsOf(given: number | string, replicas: number, round: (value: number) => number) {
  const percent = /^(\d+)%$/.exec(String(given))?.[1];
  return percent === undefined ? Number(given) : round((Number(percent) * replicas) / 100);
}

/** @returns The image that is not there. */
async function breakImage(run: DrillRun): Promise<string> {
  const { revisionHistoryLimit, template } = run.before.deployment.spec;
  const container = template.spec?.containers[0];
  if (container?.image === undefined) throw new Error("the pod template has no container");
  const { name } = container;
  const image = withTag(container.image, badTag);
  await run.patch("strategic-merge", {
    spec: {
      revisionHistoryLimit: revisionHistoryLimit + madeVersions,
      template: { spec: { containers: [{ name, image, imagePullPolicy: "Never" }] } },
    },
  });
  run.step(`rolling update to an image that is not there: ${image}`);
  return image;
}

/** Why the image of a pod cannot be had, in the words of the kubelet. */
function imageTrouble(pod: ClusterPod): string | undefined {
  const waits = pod.status?.containerStatuses?.some(({ state }) =>
    /Image/.test(state?.waiting?.reason ?? ""),
  );
  return waits ? podTrouble(pod) : undefined;
}

/** The rollout must stand still, with the old pods serving. */
async function holds(run: DrillRun, image: string): Promise<void> {
  const from = run.replicas.length - 1;
  // another pod may be in trouble for another reason
  const bad = ({ pods }: Snapshot) =>
    pods
      .filter(({ spec }) => spec.containers.some((it) => it.image === image))
      .map(imageTrouble)
      .find((it) => it !== undefined);
  const seen = await run.until(
    "a pod with the bad image fails",
    badPodSeconds,
    (now) => bad(now) !== undefined,
  );
  run.step(bad(seen) ?? "");
  await run.watch(holdSeconds);
  const { deployment } = await run.observe();
  const { least, needed } = readySince(run, from);
  run.check(
    "a bad image stops the rollout while the old pods serve",
    least >= needed,
    `never fewer than ${least} of ${deployment.spec.replicas} pods ready`,
  );
}

/** An image's name with another tag, and no digest. */
export function withTag(image: string, tag: string): string {
  const name = image.replace(/@.*$/, "").replace(/:[^:/]*$/, "");
  return `${name}:${tag}`;
}
