import { expect, test } from "vitest";
import {
  metricSourceFindings,
  type Pods,
  scalingWarnings,
  sharedQuotaFindings,
} from "./scaling.ts";

const keda = { metric: "queue-time", source: "keda", prometheus: "http://p:9090" } as const;
const replicas = { minReplicas: 2, maxReplicas: 4 };

test("accepts a metric that is scraped and has a source", () => {
  expect(metricSourceFindings("triton", keda, "service-monitor", replicas)).toEqual([]);
  const adapter = { metric: "queue-time", source: "prometheus-adapter" } as const;
  expect(metricSourceFindings("triton", adapter, "annotations", replicas)).toEqual([]);
});

test("rejects KEDA without the address of Prometheus", () => {
  const withoutAddress = { metric: "queue-time", source: "keda" } as const;
  expect(metricSourceFindings("triton", withoutAddress, "annotations", replicas)).toEqual([
    "triton.autoscaler.prometheus must be the address of Prometheus when source is keda, got nothing",
  ]);
});

test("rejects queue time without scraping", () => {
  expect(metricSourceFindings("triton", keda, "none", replicas)).toEqual([
    "scraping must be service-monitor or annotations when triton.autoscaler.metric is queue-time: otherwise no metrics are collected, got 'none'",
  ]);
});

test("requires no Prometheus for a fixed number of pods or the CPU metric", () => {
  const withoutAddress = { metric: "queue-time", source: "keda" } as const;
  const fixed = { minReplicas: 2, maxReplicas: 2 };
  expect(metricSourceFindings("triton", withoutAddress, "none", fixed)).toEqual([]);
  const cpu = { metric: "cpu", source: "keda" } as const;
  expect(metricSourceFindings("triton", cpu, "none", replicas)).toEqual([]);
});

test("warns about a single pod and about GPU pods that scale on CPU", () => {
  expect(scalingWarnings("triton", replicas, "queue-time", true)).toEqual([]);
  expect(scalingWarnings("triton", replicas, "cpu", false)).toEqual([]);
  expect(scalingWarnings("triton", { minReplicas: 1, maxReplicas: 4 }, "cpu", true)).toEqual([
    "triton.autoscaler.minReplicas is 1: a node drain interrupts the service until the next pod is ready",
    "triton.autoscaler scales on CPU, but its pods run on GPUs: CPU utilisation does not reflect GPU utilisation",
  ]);
  expect(scalingWarnings("triton", { minReplicas: 2, maxReplicas: 2 }, "cpu", true)).toEqual([]);
});

const quantities = (cpuMillicores: number, memoryMiB: number) => ({ cpuMillicores, memoryMiB });
const workloads: readonly Pods[] = [
  {
    service: "triton",
    minReplicas: 2,
    maxReplicas: 4,
    surge: 0,
    resources: { requests: quantities(2_000, 4_096), limits: quantities(4_000, 8_192) },
  },
  {
    service: "embed",
    minReplicas: 2,
    maxReplicas: 6,
    surge: 1,
    resources: { requests: quantities(500, 768), limits: quantities(2_000, 1_536) },
  },
];
const quota = {
  requests: quantities(11_500, 21_760),
  limits: quantities(30_000, 43_520),
  pods: 11,
};

test.each([
  [
    { ...quota, requests: quantities(11_499, 21_760) },
    "quota.requests.cpuMillicores must be at least 11500 (triton 4 × 2000 + embed 7 × 500), got 11499",
  ],
  [
    { ...quota, requests: quantities(11_500, 21_759) },
    "quota.requests.memoryMiB must be at least 21760 (triton 4 × 4096 + embed 7 × 768), got 21759",
  ],
  [
    { ...quota, limits: quantities(29_999, 43_520) },
    "quota.limits.cpuMillicores must be at least 30000 (triton 4 × 4000 + embed 7 × 2000), got 29999",
  ],
  [
    { ...quota, limits: quantities(30_000, 1) },
    "quota.limits.memoryMiB must be at least 43520 (triton 4 × 8192 + embed 7 × 1536), got 1",
  ],
  [{ ...quota, pods: 10 }, "quota.pods must be at least 11 (triton 4 × 1 + embed 7 × 1), got 10"],
])("rejects a quota that is too small for all Deployments together", (tight, finding) => {
  expect(sharedQuotaFindings(workloads, tight)).toEqual([finding]);
});
