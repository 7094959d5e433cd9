import {
  type ClusterAutoscaler,
  type ClusterDeployment,
  type ClusterDisruptionBudget,
  type ClusterInspection,
  type ClusterQuota,
  describeMetric,
} from "../../artefact/cluster-objects.ts";
import type { DeclaredObject } from "../../artefact/terraform-manifests.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { quantity } from "../../contract/quantity.ts";
import type { Check } from "./check.ts";
import { objectResult } from "./declared-blocks.ts";

export const clusterCheck: Check = {
  name: "cluster",
  question: "Do the autoscaler, the PodDisruptionBudget and the quota work?",
  only: "deployed",
  runEnvironment: ({ environment, deployment }) =>
    deployment?.cluster === undefined
      ? []
      : checkControllers(environment, deployment.artefact.objects, deployment.cluster),
};

/** Checks that autoscalers have a metric and set the replicas, PDBs allow a disruption, and quotas are not exceeded. */
export function checkControllers(
  environment: string,
  objects: readonly DeclaredObject[],
  inspection: ClusterInspection,
): readonly CheckResult[] {
  if (!inspection.ok) return [];
  return objects.flatMap((object) => {
    const found = inspection.found.get(object);
    if (found === undefined) return [];
    const verdict = controllerVerdict(object, found, objects, inspection.found);
    if (verdict === undefined) return [];
    const { ok, message, measured } = verdict;
    return [objectResult(object, environment, "cluster", ok ? "pass" : "fail", message, measured)];
  });
}

interface Verdict {
  readonly ok: boolean;
  readonly message: string;
  readonly measured?: Record<string, number>;
}

function controllerVerdict(
  { manifest: { kind } }: DeclaredObject,
  found: unknown,
  objects: readonly DeclaredObject[],
  all: ReadonlyMap<DeclaredObject, unknown>,
): Verdict | undefined {
  if (kind === "HorizontalPodAutoscaler") return autoscalerVerdict(found, objects, all);
  if (kind === "PodDisruptionBudget") {
    const { status } = found as ClusterDisruptionBudget;
    const { currentHealthy = 0, desiredHealthy = 0, disruptionsAllowed = 0 } = status ?? {};
    return {
      ok: disruptionsAllowed > 0,
      message: `${disruptionsAllowed} ${disruptionsAllowed === 1 ? "disruption" : "disruptions"} allowed: ${currentHealthy} pods healthy, ${desiredHealthy} required`,
      measured: { currentHealthy, desiredHealthy, disruptionsAllowed },
    };
  }
  if (kind !== "ResourceQuota") return undefined;
  const { hard = {}, used = {} } = (found as ClusterQuota).status ?? {};
  const over = Object.keys(hard).filter(
    (name) => quantity(used[name] ?? "0") > quantity(hard[name] ?? "0"),
  );
  const text = Object.entries(hard).map(
    ([name, limit]) => `${name} ${used[name] ?? "0"} of ${limit}`,
  );
  return {
    ok: over.length === 0,
    message:
      over.length === 0
        ? text.join(", ")
        : `${over.join(", ")} must not exceed the quota: ${text.join(", ")}`,
  };
}

function autoscalerVerdict(
  found: unknown,
  objects: readonly DeclaredObject[],
  all: ReadonlyMap<DeclaredObject, unknown>,
): Verdict {
  const { autoscaler, metric, replicas, owns } = scalingOf(found, objects, all);
  const { status, spec } = autoscaler;
  if (metric === undefined) {
    const cause = status?.conditions?.find((it) => it.status === "False")?.message;
    return {
      ok: false,
      message: `must have a metric, got none${cause === undefined ? "" : `: ${cause}`}`,
    };
  }
  const { desiredReplicas = 0 } = status ?? {};
  const { minReplicas = 1, maxReplicas } = spec;
  return {
    ok: owns,
    message: owns
      ? `${metric}, ${desiredReplicas} pods of ${minReplicas} to ${maxReplicas}`
      : `replicas of the Deployment must be ${desiredReplicas} as set by the autoscaler, got ${replicas}`,
    measured: { desiredReplicas, minReplicas, maxReplicas },
  };
}

interface Scaling {
  readonly autoscaler: ClusterAutoscaler;
  /** Current metric as text; undefined without one. */
  readonly metric: string | undefined;
  /** Deployment, if it is declared. */
  readonly target: DeclaredObject | undefined;
  readonly replicas: number | undefined;
  /** Whether the Deployment has the replicas set by the autoscaler. */
  readonly owns: boolean;
}

function scalingOf(
  found: unknown,
  objects: readonly DeclaredObject[],
  all: ReadonlyMap<DeclaredObject, unknown>,
): Scaling {
  const autoscaler = found as ClusterAutoscaler;
  const { status, spec } = autoscaler;
  const target = objects.find(
    ({ manifest }) =>
      manifest.kind === "Deployment" && manifest.metadata.name === spec.scaleTargetRef.name,
  );
  const live = target === undefined ? undefined : all.get(target);
  const replicas = live === undefined ? undefined : (live as ClusterDeployment).spec.replicas;
  const owns = replicas === undefined || replicas === status?.desiredReplicas;
  return { autoscaler, metric: describeMetric(autoscaler), target, replicas, owns };
}

/** Autoscalers whose state is not final yet, each with its Deployment. */
export interface Unsettled {
  /** No metric yet, as right after a deployment. */
  readonly withoutMetric: readonly DeclaredObject[];
  /** Autoscalers whose replica count differs from that of the Deployment, possibly because a change happened between the two reads. */
  readonly mismatched: readonly DeclaredObject[];
}

export function unsettledAutoscalers(found: ReadonlyMap<DeclaredObject, unknown>): Unsettled {
  const withoutMetric: DeclaredObject[] = [];
  const mismatched: DeclaredObject[] = [];
  for (const [object, stored] of found) {
    if (object.manifest.kind !== "HorizontalPodAutoscaler" || stored === undefined) continue;
    const { metric, target, owns } = scalingOf(stored, [...found.keys()], found);
    const both = target === undefined ? [object] : [target, object];
    if (metric === undefined) withoutMetric.push(...both);
    else if (!owns) mismatched.push(...both);
  }
  return { withoutMetric, mismatched };
}
