import {
  type ClusterAutoscaler,
  type ClusterDeployment,
  type ClusterDisruptionBudget,
  type ClusterInspection,
  type ClusterPod,
  type ClusterQuota,
  describeMetric,
  isReady,
  podProblem,
} from "../../artefact/cluster-objects.ts";
import type { DeclaredObject } from "../../artefact/terraform-manifests.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { resultOf, type ServiceUnderTest } from "../../bench/run/service-under-test.ts";
import { quantity } from "../../contract/quantity.ts";
import { differences } from "./container-aspects.ts";
import { manifestAspects } from "./manifest-aspects.ts";

type Outcome = CheckResult["outcome"];

/** Whether the pods of a Deployment run, since when, and how they ended before. */
export function checkPods(
  service: ServiceUnderTest,
  inspection: ClusterInspection,
  now = Date.now(),
): CheckResult {
  const report = (outcome: Outcome, message: string, measured: Record<string, number> = {}) =>
    resultOf(service, "start", outcome, message, { measured });
  if (!inspection.ok) return report("skip", inspection.message);
  const { name } = service.workload;
  const deployment = [...inspection.found].find(
    ([{ manifest }, there]) =>
      manifest.kind === "Deployment" && manifest.metadata.name === name && there !== undefined,
  )?.[1];
  if (deployment === undefined)
    return report("fail", `there is no Deployment '${name}'`, { ready: 0 });
  const { spec } = deployment as ClusterDeployment;
  const pods = inspection.pods.get(name) ?? [];
  const ready = pods.filter(isReady).length;
  const statuses = pods.flatMap(({ status }) => status?.containerStatuses ?? []);
  const restarts = statuses.reduce((sum, { restartCount }) => sum + restartCount, 0);
  const measured = { pods: pods.length, ready, restarts };
  const trouble = pods.map(podProblem).find((it) => it !== undefined);
  const problem = trouble === undefined ? "" : `: ${trouble}`;
  if (ready < Math.max(1, spec.replicas)) {
    return report("fail", `${ready} of ${spec.replicas} pods are ready${problem}`, measured);
  }
  const killed = statuses.find(
    ({ state, lastState }) =>
      state?.terminated?.reason === "OOMKilled" || lastState?.terminated?.reason === "OOMKilled",
  );
  if (killed !== undefined) {
    return report("fail", `${killed.name} ran out of memory and was restarted`, measured);
  }
  const ages = pods.map((pod) => ageSeconds(pod, now)).filter((age) => age !== undefined);
  const since = ages.length === 0 ? "" : `, for ${Math.min(...ages)} s and more`;
  return report(
    "pass",
    `${ready} of ${spec.replicas} pods are ready${since}${restarts === 0 ? "" : `, restarted ${restarts} times`}`,
    measured,
  );
}

/** Seconds since a pod became ready. */
function ageSeconds({ status }: ClusterPod, now: number): number | undefined {
  const since = status?.conditions?.find(({ type }) => type === "Ready")?.lastTransitionTime;
  return since === undefined
    ? undefined
    : Math.max(0, Math.round((now - Date.parse(since)) / 1_000));
}

/**
 * One result for each thing of an object that is not as declared, or one that says that all is.
 *
 * @param isApplied - Not by Terraform: an image whose name only it knows is another one, and is not compared.
 */
export function checkObject(
  environment: string,
  object: DeclaredObject,
  inspection: ClusterInspection,
  isApplied = false,
): readonly CheckResult[] {
  const report = (outcome: Outcome, message: string, measured: Record<string, number> = {}) =>
    objectResult(environment, object, "container", outcome, message, measured);
  // whoever cannot look cannot say that it is well
  if (!inspection.ok) return [report("fail", inspection.message)];
  const found = inspection.found.get(object);
  if (found === undefined) return [report("fail", "it is not in the cluster")];
  const aspects = manifestAspects(object.manifest, found).filter(
    ({ name, declared }) => !(isApplied && /\.image$/.test(name) && declared.includes("${")),
  );
  const different = differences(aspects);
  const measured = { compared: aspects.length, different: different.length };
  if (different.length === 0) {
    return [report("pass", `${aspects.length} facts are as declared`, measured)];
  }
  return different.map(({ name, declared, found: is }) =>
    report("fail", `${name} must be ${declared}, is ${is}`, measured),
  );
}

function objectResult(
  environment: string,
  { address, manifest }: DeclaredObject,
  id: CheckResult["id"],
  outcome: Outcome,
  message: string,
  measured: Record<string, number> = {},
): CheckResult {
  const name = manifest.metadata.name ?? "";
  return {
    id,
    environment,
    service: name,
    resource: `${address} (${manifest.kind} '${name}')`,
    outcome,
    message,
    measured,
  };
}

/** Whether autoscalers see a metric and own the replicas, budgets allow a disruption, and quotas are not exceeded. */
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
    return [objectResult(environment, object, "cluster", ok ? "pass" : "fail", message, measured)];
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
      message: `${disruptionsAllowed} ${disruptionsAllowed === 1 ? "pod" : "pods"} may be evicted: ${currentHealthy} are healthy, ${desiredHealthy} must stay`,
      measured: { currentHealthy, desiredHealthy, disruptionsAllowed },
    };
  }
  if (kind !== "ResourceQuota") return undefined;
  const { hard = {}, used = {} } = (found as ClusterQuota).status ?? {};
  const over = Object.keys(hard).filter(
    (name) => quantity(used[name] ?? "0") > quantity(hard[name] ?? "0"),
  );
  const text = Object.entries(hard).map(
    ([name, most]) => `${name} ${used[name] ?? "0"} of ${most}`,
  );
  return {
    ok: over.length === 0,
    message:
      over.length === 0
        ? text.join(", ")
        : `more is used than there is of ${over.join(", ")}: ${text.join(", ")}`,
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
    const why = status?.conditions?.find((it) => it.status === "False")?.message;
    return { ok: false, message: `it has no metric${why === undefined ? "" : `: ${why}`}` };
  }
  const { desiredReplicas = 0 } = status ?? {};
  const { minReplicas = 1, maxReplicas } = spec;
  return {
    ok: owns,
    message: owns
      ? `sees ${metric} and asks for ${desiredReplicas} pods, of ${minReplicas} to ${maxReplicas}`
      : `asks for ${desiredReplicas} pods, but the Deployment has ${replicas}: something else sets its replicas`,
    measured: { desiredReplicas, minReplicas, maxReplicas },
  };
}

interface Scaling {
  readonly autoscaler: ClusterAutoscaler;
  /** What the autoscaler sees, as text; nothing while it has no metric. */
  readonly metric: string | undefined;
  /** The Deployment, where it is declared. */
  readonly target: DeclaredObject | undefined;
  readonly replicas: number | undefined;
  /** Whether the Deployment has the replicas that the autoscaler asks for. */
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
  /** Replicas differ from the Deployment; one of the two may have been read before a change and the other after it. */
  readonly mismatched: readonly DeclaredObject[];
}

export function unsettledAutoscalers(found: ReadonlyMap<DeclaredObject, unknown>): Unsettled {
  const withoutMetric: DeclaredObject[] = [];
  const mismatched: DeclaredObject[] = [];
  for (const [object, there] of found) {
    if (object.manifest.kind !== "HorizontalPodAutoscaler" || there === undefined) continue;
    const { metric, target, owns } = scalingOf(there, [...found.keys()], found);
    const both = target === undefined ? [object] : [target, object];
    if (metric === undefined) withoutMetric.push(...both);
    else if (!owns) mismatched.push(...both);
  }
  return { withoutMetric, mismatched };
}
