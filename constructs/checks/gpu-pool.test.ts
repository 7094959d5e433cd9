import { expect, test } from "vitest";
import { type GpuPods, gpuQuotaFindings, poolFindings } from "./gpu-pool.ts";

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

test("counts whole pods per node and no remaining GPUs across nodes", () => {
  const pool = { nodes: 2, gpusPerNode: 6 };
  expect(poolFindings([triton({ gpusPerPod: 4, maxReplicas: 2 })], pool)).toEqual([]);
  expect(poolFindings([triton({ gpusPerPod: 4, maxReplicas: 3 })], pool)).toEqual([
    "triton.autoscaler.maxReplicas must be at most 2 to fit nodePool (2 × 6 GPUs, 4 per pod), got 3",
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
