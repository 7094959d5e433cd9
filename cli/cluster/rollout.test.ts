import { expect, test } from "vitest";
import type { ClusterDeployment, ClusterPod } from "../../artefact/cluster-objects.ts";
import {
  lastPodLines,
  type RolloutReader,
  type RolloutState,
  readRollout,
  rolloutJudge,
  rolloutText,
  waitForRollout,
  warningsOf,
} from "./rollout.ts";

const madeAt = "2026-11-21T20:00:00Z";

const ready: ClusterDeployment = {
  metadata: { name: "embed", uid: "1", generation: 3, annotations: {} },
  spec: {
    replicas: 2,
    revisionHistoryLimit: 3,
    progressDeadlineSeconds: 300,
    selector: { matchLabels: { app: "embed" } },
    template: {},
  },
  status: {
    observedGeneration: 3,
    replicas: 2,
    updatedReplicas: 2,
    availableReplicas: 2,
    conditions: [],
  },
};
const status = (changes: Partial<ClusterDeployment["status"]>): ClusterDeployment => ({
  ...ready,
  status: { ...ready.status, ...changes },
});
const notYet = status({ availableReplicas: 1 });

type ContainerStatus = NonNullable<NonNullable<ClusterPod["status"]>["containerStatuses"]>[number];
const starting: ContainerStatus = {
  name: "embed",
  image: "clipstack/embed:1",
  imageID: "",
  ready: false,
  restartCount: 0,
  state: { running: {} },
  lastState: {},
};
function pod(
  container: Partial<ContainerStatus> = {},
  more: Partial<ClusterPod["status"]> = {},
): ClusterPod {
  return {
    metadata: { name: "embed-1", uid: "2", creationTimestamp: madeAt, labels: {} },
    spec: { containers: [], terminationGracePeriodSeconds: 30 },
    status: {
      phase: "Pending",
      conditions: [],
      initContainerStatuses: [],
      containerStatuses: [{ ...starting, ...container }],
      ...more,
    },
  };
}
const state = (changes: Partial<RolloutState> = {}): RolloutState => ({
  deployment: notYet,
  pods: [],
  graceSeconds: 0,
  pulling: new Set(),
  ...changes,
});
/** State at the first read. */
const judge = (
  deployment: ClusterDeployment,
  pods: readonly ClusterPod[] = [],
  { replicas = 1, pulling = [] as readonly string[] } = {},
) => rolloutJudge(replicas)(state({ deployment, pods, pulling: new Set(pulling) }), 0);

/** Kind of the state at each read. */
function verdicts(...looks: readonly (readonly [seconds: number, state: RolloutState])[]) {
  const look = rolloutJudge(1);
  return looks.map(([seconds, it]) => {
    const verdict = look(it, seconds * 1_000);
    return typeof verdict === "string" ? verdict : "failed";
  });
}

test("is ready once all pods are new and ready", () => {
  expect(judge(ready)).toBe("ready");
});

test.each([
  ["the controller has not seen the change", status({ observedGeneration: 2 })],
  ["an old pod is left", status({ replicas: 3 })],
  ["a pod is not new", status({ updatedReplicas: 1, replicas: 2 })],
  ["a pod is not ready", notYet],
])("waits while %s", (_, deployment) => {
  expect(judge(deployment)).toBe("waiting");
});

test("waits until the autoscaler has set its minimum number of pods", () => {
  const one = {
    ...status({ replicas: 1, updatedReplicas: 1, availableReplicas: 1 }),
    spec: { ...ready.spec, replicas: 1 },
  };
  expect(judge(one, [], { replicas: 2 })).toBe("waiting");
  expect(judge(one, [], { replicas: 1 })).toBe("ready");
});

test("fails immediately on an image that must not be pulled", () => {
  const message = 'Container image "x:1" is not present with pull policy of Never';
  const stuck = pod({ state: { waiting: { reason: "ErrImageNeverPull", message } } });
  expect(judge(notYet, [stuck])).toEqual({
    failed: `container embed has no image: ${message}`,
    pod: "embed-1",
    container: "embed",
  });
});

const unpulled = (reason: string, name = "embed-1") => {
  const it = pod({ state: { waiting: { reason, message: "Back-off pulling image\n x" } } });
  return { ...it, metadata: { ...it.metadata, name } };
};

test("fails on an image pull only after retries", () => {
  const look = rolloutJudge(1);
  expect(look(state({ pods: [unpulled("ErrImagePull")] }), 200_000)).toBe("waiting");
  expect(look(state({ pods: [unpulled("ImagePullBackOff")] }), 229_000)).toBe("waiting");
  expect(look(state({ pods: [unpulled("ErrImagePull")] }), 230_000)).toEqual({
    failed: "container embed cannot pull its image clipstack/embed:1: Back-off pulling image x",
    pod: "embed-1",
    container: "embed",
  });
});

test("measures the age of a failure independently of the cluster's clock", () => {
  // by the clock of this machine the pod is months old, or from the future
  for (const creationTimestamp of ["2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z"]) {
    const it = unpulled("ErrImagePull");
    const pods = [{ ...it, metadata: { ...it.metadata, creationTimestamp } }];
    expect(
      verdicts(
        [0, state()],
        [180, state({ pods })],
        [209, state({ pods })],
        [210, state({ pods })],
      ),
    ).toEqual(["waiting", "waiting", "waiting", "failed"]);
  }
});

test("drops resolved failures and those of other pods", () => {
  const once = state({ pods: [unpulled("ErrImagePull")] });
  const passed = state({ pods: [pod()] });
  expect(verdicts([0, once], [20, passed], [40, once])).not.toContain("failed");
  const other = state({ pods: [unpulled("ErrImagePull", "embed-2")] });
  expect(verdicts([0, once], [20, other], [40, other])).not.toContain("failed");
});

test("waits during a retried image pull, and fails if it fails again", () => {
  const pods = [unpulled("ErrImagePull")];
  const pulling = state({ pods, pulling: new Set(["embed-1"]) });
  expect(
    verdicts([0, state({ pods })], [15, pulling], [200, pulling], [201, state({ pods })]),
  ).toEqual(["waiting", "waiting", "waiting", "failed"]);
});

test("fails on a container that cannot be started only after retries", () => {
  const waiting = { reason: "CreateContainerConfigError", message: "no secret" };
  const it = state({ pods: [pod({ state: { waiting } })] });
  expect(verdicts([0, it], [29, it], [30, it])).toEqual(["waiting", "waiting", "failed"]);
});

test("fails if a container restarts in a loop, with the reason for its end", () => {
  const loop = (reason: string, exitCode: number) =>
    judge(notYet, [pod({ restartCount: 3, lastState: { terminated: { reason, exitCode } } })]);
  expect(loop("Error", 2)).toMatchObject({
    failed: "container embed restarts in a loop (3 times): it exited with code 2",
  });
  expect(loop("OOMKilled", 137)).toMatchObject({
    failed:
      "container embed restarts in a loop (3 times): it was killed because it ran out of memory",
  });
  expect(judge(notYet, [pod({ restartCount: 2 })])).toBe("waiting");
});

const rejection = (message: string, since = madeAt) => ({ message, since });
const overQuota = rejection('pods "embed-1" is forbidden: exceeded quota: clipstack');

test("fails with the API server's message if pods are rejected persistently", () => {
  const look = rolloutJudge(1);
  expect(look(state({ rejection: overQuota }), 0)).toBe("waiting");
  expect(look(state({ rejection: overQuota }), 29_000)).toBe("waiting");
  expect(look(state({ rejection: overQuota }), 30_000)).toEqual({
    failed: `a pod was rejected: ${overQuota.message}`,
  });
});

test("waits until an old pod has released its quota and the ReplicaSet has retried", () => {
  // the old pod is gone after 40 s; the ReplicaSet, with exponential backoff, retries at most 40 s later
  const going = state({ rejection: overQuota, graceSeconds: 40 });
  const gone = state({ rejection: overQuota });
  expect(verdicts([0, going], [39, going], [41, gone], [81, gone], [82, state()])).toEqual(
    Array(5).fill("waiting"),
  );
  expect(verdicts([0, going], [41, gone], [109, gone], [110, gone])).toEqual([
    "waiting",
    "waiting",
    "waiting",
    "failed",
  ]);
});

test("restarts the limit after a pod was admitted between two rejections", () => {
  const next = state({ rejection: rejection(overQuota.message, "2026-11-21T20:01:00Z") });
  expect(verdicts([0, state({ rejection: overQuota })], [29, next], [58, next])).not.toContain(
    "failed",
  );
});

test("does not wait for old pods if a pod is rejected for another reason than a quota", () => {
  const it = state({
    rejection: rejection('pods "embed-1" is forbidden: violates PodSecurity "restricted:latest"'),
    graceSeconds: 40,
  });
  expect(verdicts([0, it], [30, it])).toEqual(["waiting", "failed"]);
});

test("reports why pods are late after the deadline of the Deployment", () => {
  const late = status({
    availableReplicas: 0,
    conditions: [
      { type: "Progressing", status: "False", reason: "ProgressDeadlineExceeded", message: "" },
    ],
  });
  expect(judge(late, [pod({}, { phase: "Running" })])).toEqual({
    failed: "container embed is running and not ready",
    pod: "embed-1",
    container: "embed",
  });
  const message = "0/1 nodes are available: 1 Insufficient cpu.";
  const unscheduled = pod(
    {},
    { conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }] },
  );
  expect(judge(late, [unscheduled])).toEqual({
    failed: `no node has capacity for a pod: ${message}`,
    pod: "embed-1",
  });
});

test("renders the progress of a rollout", () => {
  const back = pod({ state: { waiting: { reason: "CrashLoopBackOff", message: "" } } });
  expect(
    rolloutText(
      state({
        deployment: status({ replicas: 3, updatedReplicas: 1, availableReplicas: 2 }),
        pods: [back],
      }),
    ),
  ).toBe("1 of 2 pods are new, 2 ready, 2 old, CrashLoopBackOff");
});

/** Cluster with objects by the last part of their path. */
function cluster(objects: Readonly<Record<string, unknown>>): RolloutReader {
  const of = (path: string) => objects[/([^/?]+)(?:\?.*)?$/.exec(path)?.[1] ?? ""];
  return {
    namespace: "clipstack",
    api: {
      get: async <T>(path: string) => of(path) as T | undefined,
      list: async <T>(path: string) => {
        const found = of(path) as { readonly items: readonly T[] } | undefined;
        if (found === undefined) throw new Error(`${path} must not be read`);
        return found.items;
      },
      text: async (path) => (path.includes("previous=true") ? "a\n\nb\n" : "\n"),
    },
  };
}

const ofRevision = (revision: string) => ({
  annotations: { "deployment.kubernetes.io/revision": revision },
});
const ofTemplate = (hash: string) => ({ labels: { "pod-template-hash": hash } });

/** State of a Deployment with the templates `old` and `new`, and these pods. */
function readWith(...items: readonly unknown[]) {
  const replicaSet = (revision: string, hash: string, conditions: readonly object[]) => ({
    status: { conditions },
    metadata: { ...ofRevision(revision), ...ofTemplate(hash) },
  });
  const rejected = { type: "ReplicaFailure", status: "True", message: "over quota" };
  return readRollout(
    cluster({
      embed: { ...ready, metadata: { generation: 3, ...ofRevision("2") } },
      replicasets: { items: [replicaSet("1", "old", [rejected]), replicaSet("2", "new", [])] },
      pods: { items },
    }),
    "embed",
  );
}

const templatePod = (hash: string, more = {}, spec = {}) => ({
  metadata: { name: "a", creationTimestamp: madeAt, ...ofTemplate(hash), ...more },
  ...{ spec, status: {} },
});

test("reads the pods of the newest template, without terminating ones", async () => {
  const state = await readWith(
    templatePod("old"),
    templatePod("new", { name: "b" }),
    templatePod("new", { deletionTimestamp: madeAt }),
  );
  expect(state?.pods.map(({ metadata }) => metadata.name)).toEqual(["b"]);
  // rejected pods of the old template are irrelevant
  expect(state?.rejection).toBeUndefined();
});

test("reads the longest grace period of terminating and old pods", async () => {
  const of = (hash: string, terminationGracePeriodSeconds?: number, more = {}) =>
    templatePod(hash, more, { terminationGracePeriodSeconds });
  const graceOf = async (...items: readonly unknown[]) => (await readWith(...items))?.graceSeconds;
  expect(await graceOf(of("new", 90))).toBe(0);
  expect(await graceOf(of("new", 90), of("old", 40), of("old", 20))).toBe(40);
  expect(await graceOf(of("new", 90, { deletionTimestamp: madeAt }), of("old", 40))).toBe(90);
  expect(await graceOf(of("old"))).toBe(30);
});

test("detects a retried image pull from the events of a pod", async () => {
  const event = (reason: string, lastTimestamp: string) => ({
    reason,
    lastTimestamp,
    metadata: { creationTimestamp: madeAt },
  });
  const pullingWith = async (items: readonly unknown[] | undefined) => {
    const found = await readRollout(
      cluster({
        embed: notYet,
        replicasets: { items: [] },
        pods: { items: [unpulled("ImagePullBackOff")] },
        ...(items !== undefined && { events: { items } }),
      }),
      "embed",
    );
    return [...(found?.pulling ?? [])];
  };
  const failed = event("Failed", "2026-11-21T20:03:00Z");
  const again = event("Pulling", "2026-11-21T20:03:12Z");
  expect(await pullingWith([again, event("Pulling", madeAt), failed])).toEqual(["embed-1"]);
  expect(await pullingWith([event("Pulling", madeAt), failed])).toEqual([]);
  expect(await pullingWith([])).toEqual([]);
  // a user without permission to read events
  expect(await pullingWith(undefined)).toEqual([]);
});

test("fails if the Deployment does not exist", async () => {
  const options = { replicas: 1, timeoutMs: 1, intervalMs: 1, onState: () => {} };
  expect(await waitForRollout({ ...options, reader: cluster({}), deployment: "embed" })).toEqual({
    failed: "the Deployment does not exist",
  });
});

test("fails after the timeout, with the progress", async () => {
  const reader = cluster({
    embed: notYet,
    replicasets: { items: [] },
    pods: { items: [pod({}, { phase: "Running" })] },
  });
  const states: string[] = [];
  const failure = await waitForRollout({
    reader,
    deployment: "embed",
    replicas: 1,
    timeoutMs: 20,
    intervalMs: 5,
    onState: (text) => states.push(text),
  });
  expect(failure?.failed).toBe(
    "after 0 s container embed is running and not ready (2 of 2 pods are new, 1 ready)",
  );
  expect(states).toEqual(["2 of 2 pods are new, 1 ready"]);
});

test("lists warning events once, oldest first", async () => {
  const event = (message: string, lastTimestamp: string) => ({
    type: "Warning",
    reason: "Failed",
    message,
    lastTimestamp,
    metadata: { creationTimestamp: madeAt },
  });
  const reader = cluster({
    events: {
      items: [
        event("second\n line", "2026-11-21T20:00:02Z"),
        event("first", "2026-11-21T20:00:01Z"),
        event("first", "2026-11-21T20:00:03Z"),
      ],
    },
  });
  expect(await warningsOf(reader, "embed-1")).toEqual(["Failed: first", "Failed: second line"]);
});

test("reads the log of the previous run if the current one has none", async () => {
  expect(await lastPodLines(cluster({}), { pod: "embed-1" }, 20)).toEqual(["a", "b"]);
});
