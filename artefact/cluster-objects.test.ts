import { expect, test } from "vitest";
import { kubectlAutoscaler, kubectlDeployment, kubectlPod } from "../verify/test-kubectl.ts";
import {
  type ClusterAutoscaler,
  type ClusterDeployment,
  type ClusterPod,
  describeMetric,
  isReady,
  isTerminated,
  podProblem,
  rolloutProblem,
  selects,
} from "./cluster-objects.ts";

const deployment = kubectlDeployment as unknown as ClusterDeployment;
const pod = kubectlPod as unknown as ClusterPod;
const autoscaler = (status: object = {}) =>
  ({
    ...kubectlAutoscaler,
    status: { ...kubectlAutoscaler.status, ...status },
  }) as unknown as ClusterAutoscaler;

/** Pod of a kind cluster with another status. */
function podWith(status: Partial<ClusterPod["status"]>): ClusterPod {
  return { ...pod, status: { ...pod.status, ...status } };
}

function deploymentWith(change: object) {
  return { ...deployment, status: { ...deployment.status, ...change } };
}

test("a rollout is complete if all pods have the current template and are ready", () => {
  expect(rolloutProblem(deployment, [pod, pod])).toBeUndefined();
});

test.each([
  [
    "an unobserved change",
    { observedGeneration: 1 },
    2,
    "its latest change has not been observed yet",
  ],
  ["old pods", { updatedReplicas: 1 }, 2, "1 of 2 pods are of the latest revision"],
  ["a missing pod", {}, 1, "1 of 2 pods are ready"],
  ["pods that have just become ready", { availableReplicas: 1 }, 2, "1 of 2 pods are available"],
  ["a pod on its way out", {}, 3, "1 pod too many"],
])("a Deployment with %s has not settled", (_name, status, pods, why) => {
  expect(
    rolloutProblem(
      deploymentWith(status),
      Array.from({ length: pods }, () => pod),
    ),
  ).toBe(why);
});

test.each([
  ["Running", false],
  ["Pending", false],
  ["Failed", true],
  ["Succeeded", true],
])("a pod in phase %s is terminated: %s", (phase, over) => {
  expect(isTerminated(podWith({ phase }))).toBe(over);
});

test("a terminating pod receives no requests", () => {
  const leaving = {
    ...pod,
    metadata: { ...pod.metadata, deletionTimestamp: "2026-11-21T21:00:00Z" },
  };
  expect([isReady(pod), isReady(leaving)]).toEqual([true, false]);
});

test("a pod in ContainerCreating has no problem", () => {
  const state = { waiting: { reason: "ContainerCreating", message: "" } };
  const [status] = pod.status?.containerStatuses ?? [];
  if (status === undefined) throw new Error("the pod has no container");
  expect(podProblem(podWith({ containerStatuses: [{ ...status, state }] }))).toBeUndefined();
});

test("a pod with a missing image has the message of the kubelet", () => {
  const message = 'Container image "clipstack/embed:none" is not present with pull policy of Never';
  const state = { waiting: { reason: "ErrImageNeverPull", message } };
  const [status] = pod.status?.containerStatuses ?? [];
  if (status === undefined) throw new Error("the pod has no container");
  expect(podProblem(podWith({ containerStatuses: [{ ...status, state }] }))).toBe(
    `embed: ErrImageNeverPull: ${message}`,
  );
});

test("an unschedulable pod has the message of the scheduler", () => {
  const conditions = [
    {
      type: "PodScheduled",
      status: "False",
      reason: "Unschedulable",
      message: "0/1 nodes are available: 1 Insufficient cpu.",
    },
  ];
  expect(podProblem(podWith({ conditions, containerStatuses: [] }))).toBe(
    "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
  );
});

test("an autoscaler's metric is its latest value", () => {
  expect(describeMetric(autoscaler())).toMatch(/^cpu \d+ %$/);
});

test("an autoscaler has no metric until the metrics server responds", () => {
  expect(describeMetric(autoscaler({ currentMetrics: null }))).toBeUndefined();
});

test("an external metric has its name and value", () => {
  const currentMetrics = [
    {
      type: "External",
      external: { metric: { name: "queue-ms" }, current: { value: "4", averageValue: "0" } },
    },
  ];
  expect(describeMetric(autoscaler({ currentMetrics }))).toBe("queue-ms 4");
});

test("a selector matches pods with all of its labels, and an empty one matches nothing", () => {
  const labels = { app: "clipstack", part: "embed" };
  const selectors: Record<string, string>[] = [
    { app: "clipstack" },
    { app: "clipstack", part: "triton" },
    {},
  ];
  expect(selectors.map((it) => selects(it, labels))).toEqual([true, false, false]);
});
