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
/** One of the two is set. */
export interface Budget {
  readonly maxUnavailable?: number;
  readonly minAvailable?: number;
}
export interface Replicas {
  readonly minReplicas: number;
  readonly maxReplicas: number;
}

const sides = ["requests", "limits"] as const;
const quantities = ["cpuMillicores", "memoryMiB"] as const;

export function autoscalerFindings({ minReplicas, maxReplicas }: Replicas): readonly Finding[] {
  return minReplicas <= maxReplicas
    ? []
    : [`minReplicas (${minReplicas}) must not exceed maxReplicas (${maxReplicas})`];
}

/** More pods than the quota of the namespace admits, counting those that a rolling update adds. */
export function quotaFindings(
  pods: Replicas,
  surge: number,
  resources: Resources,
  quota: Quota,
): readonly Finding[] {
  const most = pods.maxReplicas + surge;
  const count = `maxReplicas ${pods.maxReplicas}${surge > 0 ? ` + ${surge} of a rolling update` : ""}`;
  const findings: Finding[] = [];
  if (most > quota.pods) {
    findings.push(`${count} must fit quota.pods, got ${most} of ${quota.pods}`);
  }
  for (const side of sides) {
    for (const quantity of quantities) {
      const needed = most * resources[side][quantity];
      if (needed > quota[side][quantity]) {
        findings.push(
          `${count} × resources.${side}.${quantity} ${resources[side][quantity]} must fit quota.${side}.${quantity}, got ${needed} of ${quota[side][quantity]}`,
        );
      }
    }
  }
  return findings;
}

/** Limits below requests, or above what the LimitRange lets one container have: the API server would refuse the pod. */
export function resourceFindings(resources: Resources, largest: Quantities): readonly Finding[] {
  return quantities.flatMap((quantity) => {
    const findings: Finding[] = [];
    if (resources.requests[quantity] > resources.limits[quantity]) {
      findings.push(
        `resources.requests.${quantity} (${resources.requests[quantity]}) must not exceed resources.limits.${quantity} (${resources.limits[quantity]})`,
      );
    }
    if (resources.limits[quantity] > largest[quantity]) {
      findings.push(
        `resources.limits.${quantity} must be at most limitRange.max.${quantity} (${largest[quantity]}), got ${resources.limits[quantity]}`,
      );
    }
    return findings;
  });
}

/** A disruption budget that refuses every eviction when the fewest replicas run: no node could be drained. */
export function budgetFindings(budget: Budget, { minReplicas }: Replicas): readonly Finding[] {
  if (budget.maxUnavailable !== undefined && budget.maxUnavailable < 1) {
    return [
      `budget.maxUnavailable must be at least 1, or no node can be drained, got ${budget.maxUnavailable}`,
    ];
  }
  if (budget.minAvailable !== undefined && budget.minAvailable >= minReplicas) {
    return [
      `budget.minAvailable must be less than minReplicas (${minReplicas}), or no node can be drained, got ${budget.minAvailable}`,
    ];
  }
  return [];
}
