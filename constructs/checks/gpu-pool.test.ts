import { expect, test } from "vitest";
import { type GpuPods, gpuQuotaFindings, gpusPerPodFindings, poolFindings } from "./gpu-pool.ts";

const triton = (props: Partial<GpuPods> = {}): GpuPods => ({
  service: "triton",
  gpusPerPod: 1,
  maxReplicas: 4,
  surge: 0,
  ...props,
});
const embed = (maxReplicas: number): GpuPods => ({ ...triton({ maxReplicas }), service: "embed" });

test("accepts pods that fit the GPUs of the nodes", () => {
  expect(poolFindings([triton()], { nodes: 4, gpusPerNode: 1 })).toEqual([]);
  expect(poolFindings([triton()], { nodes: 1, gpusPerNode: 4 })).toEqual([]);
  expect(gpuQuotaFindings([triton()], 4)).toEqual([]);
});

test("reports a pod with more GPUs than a node only once", () => {
  const pods = triton({ gpusPerPod: 4 });
  const pool = { nodes: 4, gpusPerNode: 2 };
  expect(gpusPerPodFindings(pods, pool)).toEqual([
    "triton.gpusPerPod must be at most nodePool.gpusPerNode (2): the GPUs of a pod are on one node, got 4",
  ]);
  expect(poolFindings([pods], pool)).toEqual([]);
});

test("rejects more pods than the nodes hold", () => {
  expect(poolFindings([triton({ maxReplicas: 5 })], { nodes: 2, gpusPerNode: 2 })).toEqual([
    "triton.autoscaler.maxReplicas must be at most 4 to fit nodePool (2 × 2 GPUs, 1 per pod), got 5",
  ]);
});

test("counts whole pods per node and no remaining GPUs across nodes", () => {
  const pool = { nodes: 2, gpusPerNode: 6 };
  expect(poolFindings([triton({ gpusPerPod: 4, maxReplicas: 2 })], pool)).toEqual([]);
  expect(poolFindings([triton({ gpusPerPod: 4, maxReplicas: 3 })], pool)).toEqual([
    "triton.autoscaler.maxReplicas must be at most 2 to fit nodePool (2 × 6 GPUs, 4 per pod), got 3",
  ]);
});

test("includes the surge of a rolling update", () => {
  const pods = triton({ surge: 1 });
  expect(poolFindings([pods], { nodes: 5, gpusPerNode: 1 })).toEqual([]);
  expect(poolFindings([pods], { nodes: 4, gpusPerNode: 1 })).toEqual([
    "triton.autoscaler.maxReplicas must be at most 3 to fit nodePool (4 × 1 GPUs, 1 per pod, and a rolling update adds 1 pod), got 4",
  ]);
  expect(gpuQuotaFindings([pods], 4)).toEqual([
    "triton.autoscaler.maxReplicas must be at most 3 to fit quota.gpus 4 (1 per pod, and a rolling update adds 1 pod), got 4",
  ]);
});

test("rejects a quota for fewer GPUs than the maximum number of pods needs", () => {
  expect(gpuQuotaFindings([triton({ gpusPerPod: 4, maxReplicas: 2 })], 7)).toEqual([
    "triton.autoscaler.maxReplicas must be at most 1 to fit quota.gpus 7 (4 per pod), got 2",
  ]);
});

test("rejects a quota in which no pod fits", () => {
  expect(gpuQuotaFindings([triton({ gpusPerPod: 4 })], 3)).toEqual([
    "quota.gpus 3 must have room for one pod of triton (4 per pod), got 0",
  ]);
});

test("rejects Deployments that fit alone but not together", () => {
  const both = [triton({ maxReplicas: 3 }), embed(2)];
  expect(poolFindings(both, { nodes: 5, gpusPerNode: 1 })).toEqual([]);
  expect(poolFindings(both, { nodes: 4, gpusPerNode: 1 })).toEqual([
    "nodePool.nodes × nodePool.gpusPerNode must be at least 5 (triton 3 × 1 + embed 2 × 1), got 4",
  ]);
  expect(gpuQuotaFindings(both, 4)).toEqual([
    "quota.gpus must be at least 5 (triton 3 × 1 + embed 2 × 1), got 4",
  ]);
});
