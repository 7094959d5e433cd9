import type { Finding } from "./findings.ts";

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

/** ResourceQuota of a namespace. */
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

/** Minimum and maximum number of pods. */
export interface Replicas {
  readonly minReplicas: number;
  readonly maxReplicas: number;
}

/** Autoscaling on CPU. */
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
): readonly Finding[] {
  return minReplicas <= maxReplicas
    ? []
    : [
        {
          path: `${prefix}autoscaler.minReplicas`,
          must: `not exceed ${prefix}autoscaler.maxReplicas (${maxReplicas})`,
          got: String(minReplicas),
        },
      ];
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
): readonly Finding[] {
  const bounds = [
    { name: "quota.pods", hard: quota.pods, each: 1 },
    ...sides.flatMap((side) =>
      quantities.map((quantity) => ({
        name: `quota.${side}.${quantity}`,
        hard: quota[side][quantity],
        each: resources[side][quantity],
      })),
    ),
  ].map((bound) => ({ ...bound, max: Math.floor(bound.hard / bound.each) - surge }));
  const perPod = (each: number) => `${each} per pod, and a rolling update adds ${surge} pod`;
  const tooSmall = bounds.filter(({ max }) => max < 1);
  if (tooSmall.length > 0) {
    return tooSmall.map(({ name, hard, each }) => ({
      path: name,
      must: `be at least ${(maxReplicas + surge) * each} for autoscaler.maxReplicas ${maxReplicas} (${perPod(each)})`,
      got: String(hard),
    }));
  }
  const tightest = bounds.reduce((a, b) => (b.max < a.max ? b : a));
  if (maxReplicas <= tightest.max) return [];
  return [
    {
      path: "autoscaler.maxReplicas",
      must: `be at most ${tightest.max} to fit ${tightest.name} ${tightest.hard} (${perPod(tightest.each)})`,
      got: String(maxReplicas),
    },
  ];
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
): readonly Finding[] {
  return quantities.flatMap((quantity) => {
    const findings: Finding[] = [];
    if (resources.requests[quantity] > resources.limits[quantity]) {
      findings.push({
        path: `${prefix}resources.requests.${quantity}`,
        must: `not exceed ${prefix}resources.limits.${quantity} (${resources.limits[quantity]})`,
        got: String(resources.requests[quantity]),
      });
    }
    if (max !== undefined && resources.limits[quantity] > max[quantity]) {
      findings.push({
        path: `${prefix}resources.limits.${quantity}`,
        must: `be at most limitRange.max.${quantity} (${max[quantity]})`,
        got: String(resources.limits[quantity]),
      });
    }
    return findings;
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
): readonly Finding[] {
  const { maxUnavailable, minAvailable } = budget;
  if ((maxUnavailable === undefined) === (minAvailable === undefined)) {
    return [
      {
        path: `${prefix}budget`,
        must: "set either maxUnavailable or minAvailable",
        got: JSON.stringify(budget),
      },
    ];
  }
  const less = `be less than ${prefix}autoscaler.minReplicas (${minReplicas})`;
  if (maxUnavailable !== undefined && maxUnavailable < 1) {
    return [
      {
        path: `${prefix}budget.maxUnavailable`,
        must: "be at least 1, or no node can be drained",
        got: String(maxUnavailable),
      },
    ];
  }
  if (maxUnavailable !== undefined && minReplicas > 1 && maxUnavailable >= minReplicas) {
    return [
      {
        path: `${prefix}budget.maxUnavailable`,
        must: `${less}, or all pods may be unavailable at once`,
        got: String(maxUnavailable),
      },
    ];
  }
  if (minAvailable !== undefined && minAvailable < 1) {
    return [
      {
        path: `${prefix}budget.minAvailable`,
        must: "be at least 1, or all pods may be unavailable at once",
        got: String(minAvailable),
      },
    ];
  }
  if (minAvailable !== undefined && minAvailable >= minReplicas) {
    const instead = minReplicas === 1 ? "; set maxUnavailable to 1 instead" : "";
    return [
      {
        path: `${prefix}budget.minAvailable`,
        must: `${less}, or no node can be drained${instead}`,
        got: String(minAvailable),
      },
    ];
  }
  return [];
}
