import type { Finding } from "./findings.ts";

/** CPU and memory, as settings give them. */
export interface Quantities {
  readonly cpuMillicores: number;
  readonly memoryMiB: number;
}
/** What a container asks for, and what it may use. */
export interface Resources {
  readonly requests: Quantities;
  readonly limits: Quantities;
}
export interface Quota extends Resources {
  readonly pods: number;
}
/** Default and maximum resources of one container in a namespace. */
export interface ContainerRange {
  readonly defaultRequests: Quantities;
  readonly defaultLimits: Quantities;
  readonly max: Quantities;
}
/** One of the two is set. */
export interface Budget {
  readonly maxUnavailable?: number;
  readonly minAvailable?: number;
}
export interface Replicas {
  readonly minReplicas: number;
  readonly maxReplicas: number;
}

/** Autoscaling on CPU. */
export interface CpuScaling extends Replicas {
  /** Average CPU of all pods, in percent of what they request. */
  readonly cpuPercent: number;
  /** Seconds that the load must be low before pods go. */
  readonly scaleDownWindowSeconds: number;
}

const sides = ["requests", "limits"] as const;
const quantities = ["cpuMillicores", "memoryMiB"] as const;

/** Findings of an autoscaler. `prefix` precedes the paths: `embed.`. */
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
 * More pods than the quota of the namespace admits, counting those that a rolling update adds. One line, about the
 * quantity that runs out first; where not even one pod fits, a line about each quantity that is too small.
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
  ].map((bound) => ({ ...bound, most: Math.floor(bound.hard / bound.each) - surge }));
  const perPod = (each: number) => `${each} a pod, and a rolling update adds ${surge} pod`;
  const tooSmall = bounds.filter(({ most }) => most < 1);
  if (tooSmall.length > 0) {
    return tooSmall.map(({ name, hard, each }) => ({
      path: name,
      must: `be at least ${(maxReplicas + surge) * each} for autoscaler.maxReplicas ${maxReplicas} (${perPod(each)})`,
      got: String(hard),
    }));
  }
  const tightest = bounds.reduce((a, b) => (b.most < a.most ? b : a));
  if (maxReplicas <= tightest.most) return [];
  return [
    {
      path: "autoscaler.maxReplicas",
      must: `be at most ${tightest.most} to fit ${tightest.name} ${tightest.hard} (${perPod(tightest.each)})`,
      got: String(maxReplicas),
    },
  ];
}

/** Limits below requests, or above what the LimitRange lets one container have: the API server would refuse the pod. */
export function resourceFindings(
  resources: Resources,
  largest?: Quantities,
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
    if (largest !== undefined && resources.limits[quantity] > largest[quantity]) {
      findings.push({
        path: `${prefix}resources.limits.${quantity}`,
        must: `be at most limitRange.max.${quantity} (${largest[quantity]})`,
        got: String(resources.limits[quantity]),
      });
    }
    return findings;
  });
}

/**
 * A disruption budget that says both things or nothing, that refuses every eviction when the fewest replicas run (no
 * node could be drained), or that lets all of them go at once. A single pod has nobody to stay in its place.
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
