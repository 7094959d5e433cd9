import { finding, findingIf } from "./findings.ts";

/** CPU and memory as in the settings. */
export interface Quantities {
  readonly cpuMillicores: number;
  readonly memoryMiB: number;
}

/** Resources of a container, or total resources of a namespace. */
export interface Resources {
  readonly requests: Quantities;
  readonly limits: Quantities;
}

export interface Quota extends Resources {
  readonly pods: number;
}

/** LimitRange of a namespace: default and maximum resources of one container. */
export interface ContainerRange {
  readonly defaultRequests: Quantities;
  readonly defaultLimits: Quantities;
  readonly max: Quantities;
}

/** PodDisruptionBudget. Exactly one of the properties is set. */
export interface Budget {
  /**
   * Maximum number of unavailable pods.
   *
   * @default - `minAvailable` is set
   */
  readonly maxUnavailable?: number;
  /**
   * Minimum number of available pods.
   *
   * @default - `maxUnavailable` is set
   */
  readonly minAvailable?: number;
}

export interface Replicas {
  readonly minReplicas: number;
  readonly maxReplicas: number;
}

export interface CpuScaling extends Replicas {
  /** Target average CPU utilisation of all pods, in percent of their requests. */
  readonly cpuPercent: number;
  /** Scale-down stabilisation window. */
  readonly scaleDownWindowSeconds: number;
}

const sides = ["requests", "limits"] as const;
const quantities = ["cpuMillicores", "memoryMiB"] as const;

/**
 * Rejects a minimum above the maximum.
 *
 * @param prefix - Prefix of the paths: `embed.`.
 */
export function autoscalerFindings(
  { minReplicas, maxReplicas }: Replicas,
  prefix = "",
): readonly string[] {
  return findingIf(
    minReplicas > maxReplicas,
    `${prefix}autoscaler.minReplicas`,
    `not exceed ${prefix}autoscaler.maxReplicas (${maxReplicas})`,
    minReplicas,
  );
}

/**
 * Rejects more pods, including the surge of a rolling update, than the quota of the namespace allows. Returns one finding for
 * the quantity that is exhausted first, or, if not even one pod fits, one for each quantity that is too small.
 */
export function quotaFindings(
  { maxReplicas }: Replicas,
  surge: number,
  resources: Resources,
  quota: Quota,
): readonly string[] {
  const bounds = quotaBounds(quota).map(({ name, hard, ofPod }) => {
    const each = ofPod(resources);
    return { name, hard, each, max: Math.floor(hard / each) - surge };
  });
  const perPod = (each: number) => `${each} per pod, and a rolling update adds ${surge} pod`;
  const tooSmall = bounds.filter(({ max }) => max < 1);
  if (tooSmall.length > 0) {
    return tooSmall.map(({ name, hard, each }) =>
      finding(
        name,
        `be at least ${(maxReplicas + surge) * each} for autoscaler.maxReplicas ${maxReplicas} (${perPod(each)})`,
        String(hard),
      ),
    );
  }
  const tightest = bounds.reduce((a, b) => (b.max < a.max ? b : a));
  return findingIf(
    maxReplicas > tightest.max,
    "autoscaler.maxReplicas",
    `be at most ${tightest.max} to fit ${tightest.name} ${tightest.hard} (${perPod(tightest.each)})`,
    maxReplicas,
  );
}

/** Limits of a ResourceQuota, each with the share of one pod. */
export function quotaBounds(quota: Quota) {
  return [
    { name: "quota.pods", hard: quota.pods, ofPod: (_: Resources) => 1 },
    ...sides.flatMap((side) =>
      quantities.map((quantity) => ({
        name: `quota.${side}.${quantity}`,
        hard: quota[side][quantity],
        ofPod: (resources: Resources) => resources[side][quantity],
      })),
    ),
  ];
}

/**
 * Rejects a limit that is too small for several Deployments at their maximum, including the surge of rolling updates.
 *
 * @param ofPod - Share of one pod of a Deployment.
 */
export function totalFindings<
  Pods extends { readonly service: string; readonly maxReplicas: number; readonly surge: number },
>(
  path: string,
  limit: number,
  workloads: readonly Pods[],
  ofPod: (pods: Pods) => number,
): readonly string[] {
  const parts = workloads.map((pods) => ({
    pods: pods.maxReplicas + pods.surge,
    each: ofPod(pods),
    service: pods.service,
  }));
  const needed = parts.reduce((sum, { pods, each }) => sum + pods * each, 0);
  const list = parts.map(({ service, pods, each }) => `${service} ${pods} × ${each}`).join(" + ");
  return findingIf(needed > limit, path, `be at least ${needed} (${list})`, limit);
}

/**
 * Rejects limits below the requests or above the LimitRange, because the API server would reject the pod.
 *
 * @param max - Maximum of the LimitRange.
 */
export function resourceFindings(
  resources: Resources,
  max?: Quantities,
  prefix = "",
): readonly string[] {
  return quantities.flatMap((quantity) => {
    const request = resources.requests[quantity];
    const limit = resources.limits[quantity];
    const most = max?.[quantity] ?? Number.POSITIVE_INFINITY;
    return [
      ...findingIf(
        request > limit,
        `${prefix}resources.requests.${quantity}`,
        `not exceed ${prefix}resources.limits.${quantity} (${limit})`,
        request,
      ),
      ...findingIf(
        limit > most,
        `${prefix}resources.limits.${quantity}`,
        `be at most limitRange.max.${quantity} (${most})`,
        limit,
      ),
    ];
  });
}

/**
 * Rejects a PodDisruptionBudget that sets both properties or neither, that allows no eviction at the minimum number of replicas,
 * so that no node can be drained, or that allows the eviction of all pods at once. A single pod may be evicted.
 */
export function budgetFindings(
  budget: Budget,
  { minReplicas }: Replicas,
  prefix = "",
): readonly string[] {
  const { maxUnavailable, minAvailable } = budget;
  const path = `${prefix}budget`;
  if ((maxUnavailable === undefined) === (minAvailable === undefined)) {
    const must = "set either maxUnavailable or minAvailable";
    return findingIf(true, path, must, JSON.stringify(budget));
  }
  const less = `be less than ${prefix}autoscaler.minReplicas (${minReplicas})`;
  const noDrain = "or no node can be drained";
  const allDown = "or all pods may be unavailable at once";
  if (maxUnavailable !== undefined) {
    const name = `${path}.maxUnavailable`;
    return [
      ...findingIf(maxUnavailable < 1, name, `be at least 1, ${noDrain}`, maxUnavailable),
      ...findingIf(
        minReplicas > 1 && maxUnavailable >= minReplicas,
        name,
        `${less}, ${allDown}`,
        maxUnavailable,
      ),
    ];
  }
  const name = `${path}.minAvailable`;
  const available = minAvailable ?? 0;
  if (available < 1) return findingIf(true, name, `be at least 1, ${allDown}`, available);
  const instead = minReplicas === 1 ? "; set maxUnavailable to 1 instead" : "";
  return findingIf(available >= minReplicas, name, `${less}, ${noDrain}${instead}`, available);
}
