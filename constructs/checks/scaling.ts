import type { Finding } from "./findings.ts";
import type { Quota, Replicas, Resources } from "./kubernetes.ts";

/** What a Triton is scaled on, and who tells Kubernetes of it. */
export interface ScalingMetric {
  readonly metric: "queue-time" | "cpu";
  readonly source: "keda" | "prometheus-adapter";
  /** Address of Prometheus. */
  readonly prometheus?: string;
}

/** How Prometheus comes to the metrics of the pods. */
export type Scraping = "service-monitor" | "annotations" | "none";

/** A metric that an autoscaler would never get. A fixed number of pods needs none. */
export function metricSourceFindings(
  service: string,
  { metric, source, prometheus }: ScalingMetric,
  scraping: Scraping,
  { minReplicas, maxReplicas }: Replicas,
): readonly Finding[] {
  if (metric === "cpu" || minReplicas === maxReplicas) return [];
  const findings: Finding[] = [];
  if (source === "keda" && prometheus === undefined) {
    findings.push({
      path: `${service}.autoscaler.prometheus`,
      must: "be the address of Prometheus when source is keda",
      got: "nothing",
    });
  }
  if (scraping === "none") {
    findings.push({
      path: "scraping",
      must: `be service-monitor or annotations when ${service}.autoscaler.metric is queue-time: nobody would read it`,
      got: "'none'",
    });
  }
  return findings;
}

/** What works, and is not what it may look like. */
export function scalingWarnings(
  service: string,
  { minReplicas, maxReplicas }: Replicas,
  metric: ScalingMetric["metric"],
  onGpu: boolean,
): readonly string[] {
  const warnings: string[] = [];
  if (minReplicas === 1) {
    warnings.push(
      `${service}.autoscaler.minReplicas is 1: where a node is drained, nobody answers until the next pod is ready`,
    );
  }
  if (metric === "cpu" && onGpu && minReplicas < maxReplicas) {
    warnings.push(
      `${service}.autoscaler is on CPU, and its pods compute on GPUs: the CPU of a pod says little of how busy its GPU is`,
    );
  }
  return warnings;
}

/** Pods of one Deployment, for a quota that several share. */
export interface Pods extends Replicas {
  readonly service: string;
  /** Pods that a rolling update starts before it stops others. */
  readonly surge: number;
  readonly resources: Resources;
}

/** A quota that does not admit all pods of all Deployments at their maximum, with those that rolling updates add. */
export function sharedQuotaFindings(workloads: readonly Pods[], quota: Quota): readonly Finding[] {
  const bounds = [
    { name: "quota.pods", hard: quota.pods, each: () => 1 },
    ...(["requests", "limits"] as const).flatMap((side) =>
      (["cpuMillicores", "memoryMiB"] as const).map((quantity) => ({
        name: `quota.${side}.${quantity}`,
        hard: quota[side][quantity],
        each: ({ resources }: Pods) => resources[side][quantity],
      })),
    ),
  ];
  return bounds.flatMap(({ name, hard, each }) => {
    const parts = workloads.map((pods) => ({
      pods: pods.maxReplicas + pods.surge,
      each: each(pods),
      service: pods.service,
    }));
    const needed = parts.reduce((sum, part) => sum + part.pods * part.each, 0);
    if (needed <= hard) return [];
    const list = parts.map((part) => `${part.service} ${part.pods} × ${part.each}`).join(" + ");
    return [{ path: name, must: `be at least ${needed} (${list})`, got: String(hard) }];
  });
}
