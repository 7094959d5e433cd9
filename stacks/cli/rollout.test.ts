import { expect, test } from "vitest";
import {
  type DeploymentState,
  judgeRollout,
  type Kubectl,
  lastPodLines,
  type PodState,
  readRollout,
  rolloutText,
  waitForRollout,
  warningsOf,
} from "./rollout.ts";

const madeAt = "2026-11-21T20:00:00Z";
const justMadeMs = Date.parse(madeAt) + 1_000;
const longAfterMs = Date.parse(madeAt) + 60_000;

const ready: DeploymentState = {
  metadata: { generation: 3, annotations: {} },
  spec: { replicas: 2, selector: { matchLabels: { app: "embed" } } },
  status: {
    observedGeneration: 3,
    replicas: 2,
    updatedReplicas: 2,
    availableReplicas: 2,
    conditions: [],
  },
};
const status = (changes: Partial<DeploymentState["status"]>): DeploymentState => ({
  ...ready,
  status: { ...ready.status, ...changes },
});
const notYet = status({ availableReplicas: 1 });

type ContainerStatus = PodState["status"]["containerStatuses"][number];
const starting: ContainerStatus = {
  name: "embed",
  image: "clipstack/embed:1",
  ready: false,
  restartCount: 0,
  state: { running: {} },
  lastState: {},
};
function pod(
  container: Partial<ContainerStatus> = {},
  more: Partial<PodState["status"]> = {},
): PodState {
  return {
    metadata: { name: "embed-1", creationTimestamp: madeAt, labels: {} },
    status: {
      phase: "Pending",
      conditions: [],
      initContainerStatuses: [],
      containerStatuses: [{ ...starting, ...container }],
      ...more,
    },
  };
}
const judge = (
  deployment: DeploymentState,
  pods: readonly PodState[] = [],
  { replicas = 1, nowMs = longAfterMs } = {},
) => judgeRollout({ deployment, pods }, replicas, nowMs);

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
  expect(judge(notYet, [stuck], { nowMs: justMadeMs })).toEqual({
    failed: `container embed has no image: ${message}`,
    pod: "embed-1",
    container: "embed",
  });
});

test("lets a pull be tried again before it fails", () => {
  const waiting = { reason: "ImagePullBackOff", message: "Back-off pulling image\n x" };
  const stuck = pod({ state: { waiting } });
  expect(judge(notYet, [stuck], { nowMs: justMadeMs })).toBe("waiting");
  expect(judge(notYet, [stuck])).toMatchObject({
    failed:
      "container embed cannot get its image clipstack/embed:1, which is not on the node: Back-off pulling image x",
  });
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

test("fails in the API server's words when pods are refused for longer than a moment", () => {
  const message = 'pods "embed-1" is forbidden: exceeded quota: clipstack';
  const state = {
    deployment: status({ availableReplicas: 0 }),
    pods: [],
    refused: { message, since: madeAt },
  };
  expect(judgeRollout(state, 1, longAfterMs)).toEqual({ failed: `a pod was refused: ${message}` });
  expect(judgeRollout(state, 1, justMadeMs)).toBe("waiting");
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
    rolloutText({
      deployment: status({ replicas: 3, updatedReplicas: 1, availableReplicas: 2 }),
      pods: [back],
    }),
  ).toBe("1 of 2 pods are new, 2 ready, 2 old, CrashLoopBackOff");
});

/** A cluster that answers `kubectl get …` with these objects. */
function cluster(objects: Readonly<Record<string, unknown>>): Kubectl {
  return async ([verb = "", kind = ""]) => {
    if (verb !== "get") throw new Error(`not expected: ${verb}`);
    return objects[kind] === undefined ? "" : JSON.stringify(objects[kind]);
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
    status: {},
  });
  const state = await readRollout(
    cluster({
      deployment: {
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

test("fails when there is no such Deployment", async () => {
  const options = { replicas: 1, timeoutMs: 1, intervalMs: 1, onState: () => {} };
  expect(await waitForRollout({ ...options, kubectl: cluster({}), deployment: "embed" })).toEqual({
    failed: "is not there",
  });
});

test("gives up after the time that it has, and says how far it was", async () => {
  const kubectl = cluster({
    deployment: notYet,
    replicasets: { items: [] },
    pods: { items: [pod({}, { phase: "Running" })] },
  });
  const told: string[] = [];
  const failure = await waitForRollout({
    kubectl,
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
  const kubectl = cluster({
    events: {
      items: [
        event("second\n line", "2026-11-21T20:00:02Z"),
        event("first", "2026-11-21T20:00:01Z"),
        event("first", "2026-11-21T20:00:03Z"),
      ],
    },
  });
  expect(await warningsOf(kubectl, "embed-1")).toEqual(["Failed: first", "Failed: second line"]);
});

test("shows what a container wrote before its last end when it has written nothing since", async () => {
  const kubectl: Kubectl = async (args) => (args.includes("--previous") ? "a\n\nb\n" : "\n");
  expect(await lastPodLines(kubectl, { pod: "embed-1" }, 20)).toEqual(["a", "b"]);
});
