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
/** What the first look says. */
const judge = (
  deployment: ClusterDeployment,
  pods: readonly ClusterPod[] = [],
  { replicas = 1, pulling = [] as readonly string[] } = {},
) => rolloutJudge(replicas)(state({ deployment, pods, pulling: new Set(pulling) }), 0);

/** What each look says, as one word. */
function verdicts(...looks: readonly (readonly [seconds: number, state: RolloutState])[]) {
  const look = rolloutJudge(1);
  return looks.map(([seconds, it]) => {
    const verdict = look(it, seconds * 1_000);
    return typeof verdict === "string" ? verdict : "failed";
  });
}

test("is ready when all pods are new and ready", () => {
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

test("waits until the autoscaler has asked for its fewest pods", () => {
  const one = {
    ...status({ replicas: 1, updatedReplicas: 1, availableReplicas: 1 }),
    spec: { ...ready.spec, replicas: 1 },
  };
  expect(judge(one, [], { replicas: 2 })).toBe("waiting");
  expect(judge(one, [], { replicas: 1 })).toBe("ready");
});

test("fails at once on an image that may not be pulled", () => {
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

test("lets a pull be tried again before it fails", () => {
  const look = rolloutJudge(1);
  expect(look(state({ pods: [unpulled("ErrImagePull")] }), 200_000)).toBe("waiting");
  expect(look(state({ pods: [unpulled("ImagePullBackOff")] }), 229_000)).toBe("waiting");
  expect(look(state({ pods: [unpulled("ErrImagePull")] }), 230_000)).toEqual({
    failed:
      "container embed cannot get its image clipstack/embed:1, which is not on the node: Back-off pulling image x",
    pod: "embed-1",
    container: "embed",
  });
});

test("counts its patience from the failure, whatever the cluster's clock says", () => {
  // the pod is months old by the clock of this machine, or from the future
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

test("forgets a failure that has passed, and that of another pod", () => {
  const once = state({ pods: [unpulled("ErrImagePull")] });
  const passed = state({ pods: [pod()] });
  expect(verdicts([0, once], [20, passed], [40, once])).not.toContain("failed");
  const other = state({ pods: [unpulled("ErrImagePull", "embed-2")] });
  expect(verdicts([0, once], [20, other], [40, other])).not.toContain("failed");
});

test("waits while an image is pulled again, and fails when that has failed too", () => {
  const pods = [unpulled("ErrImagePull")];
  const pulling = state({ pods, pulling: new Set(["embed-1"]) });
  expect(
    verdicts([0, state({ pods })], [15, pulling], [200, pulling], [201, state({ pods })]),
  ).toEqual(["waiting", "waiting", "waiting", "failed"]);
});

test("lets a container that cannot be started be tried again before it fails", () => {
  const waiting = { reason: "CreateContainerConfigError", message: "no secret" };
  const it = state({ pods: [pod({ state: { waiting } })] });
  expect(verdicts([0, it], [29, it], [30, it])).toEqual(["waiting", "waiting", "failed"]);
});

test("fails when a container restarts in a loop, and says how it ended", () => {
  const loop = (reason: string, exitCode: number) =>
    judge(notYet, [pod({ restartCount: 3, lastState: { terminated: { reason, exitCode } } })]);
  expect(loop("Error", 2)).toMatchObject({
    failed: "container embed restarts in a loop (3 times): it exited with code 2",
  });
  expect(loop("OOMKilled", 137)).toMatchObject({
    failed: "container embed restarts in a loop (3 times): it was ended for lack of memory",
  });
  expect(judge(notYet, [pod({ restartCount: 2 })])).toBe("waiting");
});

const refused = (message: string, since = madeAt) => ({ message, since });
const overQuota = refused('pods "embed-1" is forbidden: exceeded quota: clipstack');

test("fails in the API server's words when pods are refused for longer than a moment", () => {
  const look = rolloutJudge(1);
  expect(look(state({ refused: overQuota }), 0)).toBe("waiting");
  expect(look(state({ refused: overQuota }), 29_000)).toBe("waiting");
  expect(look(state({ refused: overQuota }), 30_000)).toEqual({
    failed: `a pod was refused: ${overQuota.message}`,
  });
});

test("waits until an old pod gives its quota back, and the ReplicaSet has tried again", () => {
  // 40 s until the old pod is gone; the ReplicaSet, which doubles its pauses, tries again at the latest 40 s later
  const going = state({ refused: overQuota, graceSeconds: 40 });
  const gone = state({ refused: overQuota });
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

test("counts anew when a pod was admitted between two refusals", () => {
  const next = state({ refused: refused(overQuota.message, "2026-11-21T20:01:00Z") });
  expect(verdicts([0, state({ refused: overQuota })], [29, next], [58, next])).not.toContain(
    "failed",
  );
});

test("does not wait for old pods when what refuses a pod is no quota", () => {
  const it = state({
    refused: refused('pods "embed-1" is forbidden: violates PodSecurity "restricted:latest"'),
    graceSeconds: 40,
  });
  expect(verdicts([0, it], [30, it])).toEqual(["waiting", "failed"]);
});

test("says what holds pods up when the deadline of the Deployment has passed", () => {
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
    failed: `no node has room for a pod: ${message}`,
    pod: "embed-1",
  });
});

test("says how far a rollout is", () => {
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

/** A cluster that has these objects, by the last part of their path. */
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

test("looks at the pods of the newest template, and not at those that go", async () => {
  const replicaSet = (revision: string, hash: string, message?: string) => ({
    status: {
      conditions:
        message === undefined ? [] : [{ type: "ReplicaFailure", status: "True", message }],
    },
    metadata: {
      annotations: { "deployment.kubernetes.io/revision": revision },
      labels: { "pod-template-hash": hash },
    },
  });
  const of = (name: string, hash: string, more = {}) => ({
    metadata: { name, creationTimestamp: madeAt, labels: { "pod-template-hash": hash }, ...more },
    spec: {},
    status: {},
  });
  const state = await readRollout(
    cluster({
      embed: {
        ...ready,
        metadata: { generation: 3, annotations: { "deployment.kubernetes.io/revision": "2" } },
      },
      replicasets: { items: [replicaSet("1", "old", "over quota"), replicaSet("2", "new")] },
      pods: {
        items: [of("a", "old"), of("b", "new"), of("c", "new", { deletionTimestamp: madeAt })],
      },
    }),
    "embed",
  );
  expect(state?.pods.map(({ metadata }) => metadata.name)).toEqual(["b"]);
  // that pods of the old template were refused is over
  expect(state?.refused).toBeUndefined();
});

test("knows how long the pods that go, and those that are old, may take to stop", async () => {
  const of = (hash: string, seconds: number | undefined, more = {}) => ({
    metadata: {
      name: "a",
      creationTimestamp: madeAt,
      labels: { "pod-template-hash": hash },
      ...more,
    },
    spec: seconds === undefined ? {} : { terminationGracePeriodSeconds: seconds },
    status: {},
  });
  const graceOf = async (...items: readonly unknown[]) => {
    const found = await readRollout(
      cluster({
        embed: {
          ...ready,
          metadata: { generation: 3, annotations: { "deployment.kubernetes.io/revision": "2" } },
        },
        replicasets: {
          items: [
            {
              metadata: {
                annotations: { "deployment.kubernetes.io/revision": "2" },
                labels: { "pod-template-hash": "new" },
              },
            },
          ],
        },
        pods: { items },
      }),
      "embed",
    );
    return found?.graceSeconds;
  };
  expect(await graceOf(of("new", 90))).toBe(0);
  expect(await graceOf(of("new", 90), of("old", 40), of("old", 20))).toBe(40);
  expect(await graceOf(of("new", 90, { deletionTimestamp: madeAt }), of("old", 40))).toBe(90);
  expect(await graceOf(of("old", undefined))).toBe(30);
});

test("takes from a pod's events whether its image is pulled again", async () => {
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
  // somebody who may not see events
  expect(await pullingWith(undefined)).toEqual([]);
});

test("fails when there is no such Deployment", async () => {
  const options = { replicas: 1, timeoutMs: 1, intervalMs: 1, onState: () => {} };
  expect(await waitForRollout({ ...options, reader: cluster({}), deployment: "embed" })).toEqual({
    failed: "is not there",
  });
});

test("gives up after the time that it has, and says how far it was", async () => {
  const reader = cluster({
    embed: notYet,
    replicasets: { items: [] },
    pods: { items: [pod({}, { phase: "Running" })] },
  });
  const told: string[] = [];
  const failure = await waitForRollout({
    reader,
    deployment: "embed",
    replicas: 1,
    timeoutMs: 20,
    intervalMs: 5,
    onState: (text) => told.push(text),
  });
  expect(failure?.failed).toBe(
    "after 0 s container embed is running and not ready (2 of 2 pods are new, 1 ready)",
  );
  expect(told).toEqual(["2 of 2 pods are new, 1 ready"]);
});

test("tells each warning of the cluster once, the oldest first", async () => {
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

test("shows what a container wrote before its last end when it has written nothing since", async () => {
  expect(await lastPodLines(cluster({}), { pod: "embed-1" }, 20)).toEqual(["a", "b"]);
});
