import { findingIf } from "./findings.ts";
import {
  type Quota,
  quotaBounds,
  type Replicas,
  type Resources,
  totalFindings,
} from "./kubernetes.ts";

/** Autoscaling metric of Triton and its source. */
export interface ScalingMetric {
  readonly metric: "queue-time" | "cpu";
  /** Source of the queue time. */
  readonly source: "keda" | "prometheus-adapter";
  /**
   * URL of Prometheus, required with `keda`.
   *
   * @default - none
   */
  readonly prometheus?: string;
}

/** Mechanism by which Prometheus discovers the pods. */
export type Scraping = "service-monitor" | "annotations" | "none";

/** Rejects a queue time that the autoscaler could not read. A fixed number of pods requires no metric. */
export function metricSourceFindings(
  service: string,
  { metric, source, prometheus }: ScalingMetric,
  scraping: Scraping,
  { minReplicas, maxReplicas }: Replicas,
): readonly string[] {
  if (metric === "cpu" || minReplicas === maxReplicas) return [];
  return [
    ...findingIf(
      source === "keda" && prometheus === undefined,
      `${service}.autoscaler.prometheus`,
      "be the address of Prometheus when source is keda",
      "nothing",
    ),
    ...findingIf(
      scraping === "none",
      "scraping",
      `be service-monitor or annotations when ${service}.autoscaler.metric is queue-time: otherwise no metrics are collected`,
      "'none'",
    ),
  ];
}

/** Warnings about a single replica and about GPU pods that scale on CPU. */
export function scalingWarnings(
  service: string,
  { minReplicas, maxReplicas }: Replicas,
  metric: ScalingMetric["metric"],
  usesGpu: boolean,
): readonly string[] {
  const warnings: string[] = [];
  if (minReplicas === 1) {
    warnings.push(
      `${service}.autoscaler.minReplicas is 1: a node drain interrupts the service until the next pod is ready`,
    );
  }
  if (metric === "cpu" && usesGpu && minReplicas < maxReplicas) {
    warnings.push(
      `${service}.autoscaler scales on CPU, but its pods run on GPUs: CPU utilisation does not reflect GPU utilisation`,
    );
  }
  return warnings;
}

/** Pods of one of several Deployments that share a quota. */
export interface Pods extends Replicas {
  readonly service: string;
  /** Additional pods during a rolling update. */
  readonly surge: number;
  readonly resources: Resources;
}

/** Rejects a quota that is too small for all Deployments at their maximum, including the surge of rolling updates. */
export function sharedQuotaFindings(workloads: readonly Pods[], quota: Quota): readonly string[] {
  return quotaBounds(quota).flatMap(({ name, hard, ofPod }) =>
    totalFindings(name, hard, workloads, ({ resources }) => ofPod(resources)),
  );
}
