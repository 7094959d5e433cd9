import { expect, test } from "vitest";
import { parseArtefact } from "../../artefact/artefact.ts";
import type { ClusterInspection, ClusterPod } from "../../artefact/cluster-objects.ts";
import type { DeclaredObject, Manifest } from "../../artefact/terraform-manifests.ts";
import { kubernetesDocument } from "../../artefact/test-artefact.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { openService } from "../../target/service/target-service.ts";
import {
  kubectlAutoscaler,
  kubectlBudget,
  kubectlDeployment,
  kubectlPod,
  kubectlQuota,
} from "../test-kubectl.ts";
import { checkControllers } from "./cluster.ts";
import { checkObject } from "./container.ts";
import { checkPods } from "./start.ts";

/** Declared object derived from the object in the cluster. */
function declare(found: object): DeclaredObject {
  const manifest = found as Manifest;
  return { address: `kubernetes_${manifest.kind.toLowerCase()}.it`, manifest };
}

const deployment = declare(kubectlDeployment);
const autoscaler = declare(kubectlAutoscaler);

function inspectionOf(
  found: readonly (readonly [DeclaredObject, unknown])[],
  pods: readonly unknown[] = [kubectlPod, kubectlPod],
): ClusterInspection {
  return {
    ok: true,
    found: new Map(found),
    pods: new Map([["clipstack-embed", pods as unknown as ClusterPod[]]]),
  };
}

function service() {
  const { workloads } = parseArtefact(JSON.stringify(kubernetesDocument()), "cdk.tf.json");
  const [workload] = workloads;
  if (workload === undefined) throw new Error("there is no workload");
  return openService("cluster", { ...workload, name: "clipstack-embed" }, [defaultModel], [], []);
}

/** Outcome and message of the one controller of an object. */
function controller(found: object, others: readonly (readonly [DeclaredObject, unknown])[] = []) {
  const object = declare(found);
  const objects = [object, ...others.map(([it]) => it)];
  const results = checkControllers("cluster", objects, inspectionOf([[object, found], ...others]));
  return results
    .filter((it) => it.resource.startsWith(object.address))
    .map((it) => [it.outcome, it.message]);
}

test("ready pods pass, with number and age", () => {
  const ready = kubectlPod.status.conditions.find(({ type }) => type === "Ready");
  const now = Date.parse(ready?.lastTransitionTime ?? "") + 60_000;
  const found = checkPods(service(), inspectionOf([[deployment, kubectlDeployment]]), now);
  expect([found.outcome, found.message]).toEqual([
    "pass",
    "2 of 2 pods are ready for at least 60 s",
  ]);
});

test("fails on a missing pod", () => {
  const found = checkPods(service(), inspectionOf([[deployment, kubectlDeployment]], [kubectlPod]));
  expect([found.outcome, found.message]).toEqual(["fail", "2 pods must be ready, got 1"]);
});

test("fails when a container ran out of memory, though its pod is ready again", () => {
  const [status] = kubectlPod.status.containerStatuses;
  const killed = {
    ...kubectlPod,
    status: {
      ...kubectlPod.status,
      containerStatuses: [
        {
          ...status,
          restartCount: 1,
          lastState: { terminated: { reason: "OOMKilled", exitCode: 137 } },
        },
      ],
    },
  };
  const inspection = inspectionOf([[deployment, kubectlDeployment]], [kubectlPod, killed]);
  expect(checkPods(service(), inspection)).toMatchObject({
    outcome: "fail",
    message: "embed ran out of memory and was restarted",
  });
});

test("fails on a missing Deployment", () => {
  expect(checkPods(service(), inspectionOf([[deployment, undefined]]))).toMatchObject({
    outcome: "fail",
    message: "Deployment 'clipstack-embed' must exist",
  });
});

test("a missing object fails", () => {
  expect(checkObject("cluster", deployment, inspectionOf([]))).toMatchObject([
    {
      outcome: "fail",
      message: "the object must exist in the cluster",
      service: "clipstack-embed",
    },
  ]);
});

test("an unreadable object does not pass", () => {
  const inspection = { ok: false, message: "the cluster does not answer" } as const;
  expect(checkObject("cluster", deployment, inspection)).toMatchObject([
    { outcome: "fail", message: "the cluster does not answer" },
  ]);
  expect(checkPods(service(), inspection).outcome).toBe("skip");
});

test("a Terraform expression in an image name matches any value and is not compared for applied objects", () => {
  const manifest = structuredClone(kubectlDeployment);
  const [container] = manifest.spec.template.spec.containers;
  if (container === undefined) throw new Error("there is no container");
  container.image = `clipstack/embed:k8s-cpu-\${local.hash}`;
  const object = declare(manifest);
  const inspection = inspectionOf([[object, kubectlDeployment]]);
  expect(checkObject("cluster", object, inspection)).toMatchObject([
    {
      outcome: "fail",
      message: `containers.embed.image must be clipstack/embed:k8s-cpu-\${local.hash}, got clipstack/embed:k8s-cpu`,
    },
  ]);
  expect(checkObject("cluster", object, inspection, true)).toMatchObject([{ outcome: "pass" }]);
});

test("an autoscaler with a metric that sets the replicas passes", () => {
  const found = {
    ...kubectlAutoscaler,
    status: { ...kubectlAutoscaler.status, desiredReplicas: 2 },
  };
  const [[outcome, message] = []] = controller(found, [[deployment, kubectlDeployment]]);
  expect(outcome).toBe("pass");
  expect(message).toMatch(/^cpu \d+ %, 2 pods of 2 to 3$/);
});

test("an autoscaler without a metric fails with the message of its controller", () => {
  const message = "the HPA was unable to compute the replica count: no metrics returned";
  const conditions = [{ type: "ScalingActive", status: "False", reason: "Failed", message }];
  const status = { ...kubectlAutoscaler.status, currentMetrics: null, conditions };
  expect(controller({ ...kubectlAutoscaler, status })).toEqual([
    ["fail", `must have a metric, got none: ${message}`],
  ]);
});

test("an autoscaler whose Deployment has other replicas fails", () => {
  const found = {
    ...kubectlAutoscaler,
    status: { ...kubectlAutoscaler.status, desiredReplicas: 3 },
  };
  expect(controller(found, [[deployment, kubectlDeployment]])).toEqual([
    ["fail", "replicas of the Deployment must be 3 as set by the autoscaler, got 2"],
  ]);
  expect(autoscaler.manifest.kind).toBe("HorizontalPodAutoscaler");
});

test("a PDB that allows no disruption fails", () => {
  const status = { ...kubectlBudget.status, disruptionsAllowed: 0, currentHealthy: 1 };
  expect(controller({ ...kubectlBudget, status })).toEqual([
    ["fail", "0 disruptions allowed: 1 pods healthy, 2 required"],
  ]);
});

test("an exceeded quota fails", () => {
  const status = {
    hard: { pods: "10", "requests.cpu": "1" },
    used: { pods: "2", "requests.cpu": "1250m" },
  };
  expect(controller({ ...kubectlQuota, status })).toEqual([
    ["fail", "requests.cpu must not exceed the quota: pods 2 of 10, requests.cpu 1250m of 1"],
  ]);
});
