import { expect, test } from "vitest";
import type { DeclaredObject, Manifest } from "../../artefact/terraform-manifests.ts";
import { checkControllers } from "../../verify/checks/cluster.ts";
import {
  kubectlAutoscaler,
  kubectlBudget,
  kubectlDeployment,
  kubectlPod,
} from "../../verify/test-kubectl.ts";
import { objectPath, readObjects, type WaitLimits } from "./deployed-cluster.ts";

const patience: WaitLimits = { metricMs: 60_000, metricPollMs: 1, rereads: 3, rereadPauseMs: 1 };

function declare(found: object): DeclaredObject {
  const manifest = found as Manifest;
  return { address: `kubernetes_${manifest.kind.toLowerCase()}.it`, manifest };
}

const deployment = declare(kubectlDeployment);
const budget = declare(kubectlBudget);
const autoscaler = declare(kubectlAutoscaler);
const objects = [deployment, budget, autoscaler];

function scaled(replicas: number) {
  return { ...kubectlDeployment, spec: { ...kubectlDeployment.spec, replicas } };
}

function asking(desiredReplicas: number) {
  return { ...kubectlAutoscaler, status: { ...kubectlAutoscaler.status, desiredReplicas } };
}

const withoutMetric = {
  ...kubectlAutoscaler,
  status: { ...kubectlAutoscaler.status, desiredReplicas: 0, currentMetrics: null, conditions: [] },
};

/** Object at each read; the last one stays. */
interface Course {
  readonly deployment?: readonly object[];
  readonly autoscaler?: readonly object[];
  readonly budget?: readonly object[];
}

/** Checks the controllers of a cluster that changes during the check; returns the findings and the number of reads. */
async function judged(course: Course, limits: Partial<WaitLimits> = {}) {
  const courses = new Map<string, readonly object[]>([
    [objectPath(deployment.manifest), course.deployment ?? [kubectlDeployment]],
    [objectPath(autoscaler.manifest), course.autoscaler ?? [kubectlAutoscaler]],
    [objectPath(budget.manifest), course.budget ?? [kubectlBudget]],
  ]);
  const reads = new Map<string, number>();
  const api = {
    async get<T>(path: string): Promise<T | undefined> {
      const states = courses.get(path) ?? [];
      const count = reads.get(path) ?? 0;
      reads.set(path, count + 1);
      return states[Math.min(count, states.length - 1)] as T | undefined;
    },
    list: async <T>(): Promise<readonly T[]> => [kubectlPod as T],
  };
  const inspection = await readObjects(api, objects, undefined, { ...patience, ...limits });
  return {
    failures: checkControllers("cluster", objects, inspection)
      .filter(({ outcome }) => outcome !== "pass")
      .map(({ message }) => message),
    autoscalerReads: reads.get(objectPath(autoscaler.manifest)),
    inspection,
  };
}

test("a consistent cluster is read once", async () => {
  expect(await judged({})).toMatchObject({ failures: [], autoscalerReads: 1 });
});

test("a scaling between two reads is not a manual change", async () => {
  const course = { deployment: [scaled(2), scaled(3)], autoscaler: [asking(3)] };
  const { failures, inspection } = await judged(course);
  expect(failures).toEqual([]);
  expect(inspection.ok && inspection.pods.get("clipstack-embed")).toHaveLength(1);
});

test("fails if the replicas stay different", async () => {
  expect(await judged({ deployment: [scaled(5)] })).toMatchObject({
    failures: ["replicas of the Deployment must be 2 as set by the autoscaler, got 5"],
    autoscalerReads: 4,
  });
});

test("waits for the first metric of an autoscaler and reads the other objects again", async () => {
  const none = { ...kubectlBudget, status: { ...kubectlBudget.status, disruptionsAllowed: 0 } };
  const course = {
    autoscaler: [withoutMetric, withoutMetric, kubectlAutoscaler],
    budget: [none, kubectlBudget],
  };
  expect(await judged(course)).toMatchObject({ failures: [], autoscalerReads: 3 });
});

test("fails without a metric after the limit", async () => {
  const { failures } = await judged({ autoscaler: [withoutMetric] }, { metricMs: 20 });
  expect(failures).toEqual(["must have a metric, got none"]);
});

test("a wait for a metric can be aborted", async () => {
  const api = {
    get: async <T>(): Promise<T | undefined> => withoutMetric as T,
    list: async <T>(): Promise<readonly T[]> => [],
  };
  const limits = { ...patience, metricPollMs: 30_000 };
  await expect(
    readObjects(api, [autoscaler], AbortSignal.timeout(20), limits),
  ).rejects.toMatchObject({
    name: "AbortError",
  });
});
