import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { type ClusterPod, podTrouble, unrest } from "../../bench/src/cluster-objects.ts";
import {
  ClaimFailed,
  deadlineSeconds,
  defaultRate,
  type ExerciseBody,
  type ExerciseRun,
  type Snapshot,
} from "./k8s-exercise.ts";

const restart = "restart";
const undo = "undo";
const badImage = "bad image";

/** No registry has it, and nobody is asked for it. */
const badTag = "clipstack-no-such-image";

/** Load before the first change, and while a bad rollout stands still; in seconds. */
const calmSeconds = 3;
const holdSeconds = 10;
/** The kubelet says at once that an image is not there. */
const badPodSeconds = 60;

/** Versions that the exercise makes: nothing of the user's may be dropped for them. */
const madeVersions = 2;

/**
 * A rollout that an image stops, then a rolling update and the way back, all under load. In this order, since the version
 * before the last one is what the next `kubectl rollout undo` goes to.
 */
export const rolloutExercise: ExerciseBody = {
  exercise: "rollout",

  async act(run) {
    const { deployment: name } = run.target;
    await run.load({
      kind: "fixed rate",
      ratePerSecond: run.options.ratePerSecond ?? defaultRate,
    });
    run.phase(badImage);
    await run.watch(calmSeconds);
    await holds(run, await breakImage(run));
    await run.kubectl("rollout", "undo", `deployment/${name}`);
    run.step("rollback to the version before");
    await run.atRest("the rollback is done", deadlineSeconds(run.before));

    run.phase(restart);
    run.step("rolling update: every pod is replaced");
    await replaces(run, restart, () => run.kubectl("rollout", "restart", `deployment/${name}`));

    run.phase(undo);
    run.step("rollback to the version before");
    await replaces(run, undo, () => run.kubectl("rollout", "undo", `deployment/${name}`));

    await run.endLoad();
    for (const phase of [badImage, restart, undo]) run.checkAnswered(phase);
  },

  async restore(run) {
    const { deployment } = await run.look();
    const { template } = run.before.deployment.spec;
    if (isDeepStrictEqual(deployment.spec.template, template)) return;
    await replace(run, "/spec/template", template);
    run.step("the pod template is put back");
  },

  async tidy(run) {
    const { deployment, replicaSets } = await run.look();
    const there = new Set(run.before.replicaSets.map(({ metadata }) => metadata.uid));
    for (const { metadata, spec, status } of replicaSets) {
      if (there.has(metadata.uid) || spec.replicas > 0 || status.replicas > 0) continue;
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

/**
 * A patch takes the fields that it sets over from whoever had applied them, and the next server-side apply would conflict.
 * Fields of the status and of an autoscaler are left to those who write them meanwhile.
 */
async function giveFieldsBack(run: ExerciseRun): Promise<void> {
  const { deployment } = await run.look();
  const { managedFields } = deployment.metadata;
  const owned = [
    ...run.before.deployment.metadata.managedFields.filter((it) => it.subresource === undefined),
    ...managedFields.filter((it) => it.subresource !== undefined),
  ];
  if (owned.length === 0 || isDeepStrictEqual(new Set(managedFields), new Set(owned))) return;
  await replace(run, "/metadata/managedFields", owned);
}

async function replace(run: ExerciseRun, path: string, value: unknown): Promise<void> {
  await run.kubectl(
    ...["patch", "deployment", run.target.deployment, "--type=json"],
    `--patch=${JSON.stringify([{ op: "replace", path, value }])}`,
  );
}

/** The fewest pods that were ready since some point, and that had to be: an autoscaler may ask for fewer meanwhile. */
function readySince(run: ExerciseRun, from: number): { least: number; needed: number } {
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
  run: ExerciseRun,
  phase: string,
  change: () => Promise<unknown>,
): Promise<void> {
  const old = await run.look();
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

const strategy = z.object({
  strategy: z
    .object({
      rollingUpdate: z
        .object({
          maxUnavailable: z.union([z.number(), z.string()]).default("25%"),
          maxSurge: z.union([z.number(), z.string()]).default("25%"),
        })
        .optional(),
    })
    .optional(),
});

/** Pods that a rolling update may take away before their successors are ready, as Kubernetes counts them. */
export function mayBeAway(spec: unknown, replicas: number): number {
  const update = strategy.safeParse(spec).data?.strategy?.rollingUpdate;
  if (update === undefined) return 0;
  const away = podsOf(update.maxUnavailable, replicas, Math.floor);
  // with neither, a rollout could not begin
  return away === 0 && podsOf(update.maxSurge, replicas, Math.ceil) === 0 ? 1 : away;
}

function podsOf(given: number | string, replicas: number, round: (value: number) => number) {
  const percent = /^(\d+)%$/.exec(String(given))?.[1];
  return percent === undefined ? Number(given) : round((Number(percent) * replicas) / 100);
}

/** @returns The image that is not there. */
async function breakImage(run: ExerciseRun): Promise<string> {
  const { revisionHistoryLimit, template } = run.before.deployment.spec;
  const container = template.spec.containers[0];
  if (container === undefined) throw new ClaimFailed("the pod template has no container");
  const image = withTag(container.image, badTag);
  const patch = {
    spec: {
      revisionHistoryLimit: revisionHistoryLimit + madeVersions,
      template: {
        spec: { containers: [{ name: container.name, image, imagePullPolicy: "Never" }] },
      },
    },
  };
  await run.kubectl(
    ...["patch", "deployment", run.target.deployment, "--type=strategic"],
    `--patch=${JSON.stringify(patch)}`,
  );
  run.step(`rolling update to an image that is not there: ${image}`);
  return image;
}

/** Why the image of a pod cannot be had, in the words of the kubelet. */
function imageTrouble(pod: ClusterPod): string | undefined {
  const reasons = pod.status.containerStatuses.map(({ state }) => state.waiting?.reason ?? "");
  return reasons.some((it) => /Image/.test(it)) ? podTrouble(pod) : undefined;
}

/** The rollout must stand still, with the old pods serving. */
async function holds(run: ExerciseRun, image: string): Promise<void> {
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
  const { deployment } = await run.look();
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
