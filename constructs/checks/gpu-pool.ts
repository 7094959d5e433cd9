import { findingIf } from "./findings.ts";
import { totalFindings } from "./kubernetes.ts";

/** GPU nodes of a cluster, as the settings declare them. */
export interface GpuPool {
  readonly nodes: number;
  readonly gpusPerNode: number;
}

/** Pods of one Deployment, each with GPUs. */
export interface GpuPods {
  /** Prefix of the settings: `embed` or `triton`. */
  readonly service: string;
  readonly gpusPerPod: number;
  readonly maxReplicas: number;
  /** Additional pods during a rolling update. */
  readonly surge: number;
}

/** Rejects a pod with more GPUs than a node. */
export function gpusPerPodFindings(
  { service, gpusPerPod }: GpuPods,
  { gpusPerNode }: GpuPool,
): readonly string[] {
  return findingIf(
    gpusPerPod > gpusPerNode,
    `${service}.gpusPerPod`,
    `be at most nodePool.gpusPerNode (${gpusPerNode}): the GPUs of a pod are on one node`,
    gpusPerPod,
  );
}

/**
 * Rejects more pods, including the surge of a rolling update, than the GPU nodes hold, because the others would stay pending.
 * Counts whole pods per node: a node with 8 GPUs holds two pods with 3 GPUs each.
 *
 * Ignores pods that `gpusPerPodFindings` rejects.
 */
export function poolFindings(workloads: readonly GpuPods[], pool: GpuPool): readonly string[] {
  const { nodes, gpusPerNode } = pool;
  const fitting = workloads.filter((pods) => gpusPerPodFindings(pods, pool).length === 0);
  const findings = fitting.flatMap((pods) => {
    const capacity = nodes * Math.floor(gpusPerNode / pods.gpusPerPod);
    return replicasFindings(pods, capacity, "nodePool", `${nodes} × ${gpusPerNode} GPUs, `);
  });
  return findings.length > 0
    ? findings
    : totalFindings(
        "nodePool.nodes × nodePool.gpusPerNode",
        nodes * gpusPerNode,
        fitting,
        gpusOfPod,
      );
}

/** Rejects more GPUs than the quota of the namespace allows, because the API server would reject the pods. */
export function gpuQuotaFindings(workloads: readonly GpuPods[], gpus: number): readonly string[] {
  const findings = workloads.flatMap((pods) =>
    replicasFindings(pods, Math.floor(gpus / pods.gpusPerPod), `quota.gpus ${gpus}`),
  );
  return findings.length > 0 ? findings : totalFindings("quota.gpus", gpus, workloads, gpusOfPod);
}

/**
 * Rejects more pods of one Deployment than fit.
 *
 * @param capacity - Maximum number of pods, including the surge.
 * @param limit - Setting that limits the capacity.
 * @param detail - Text about the capacity, for the message.
 */
function replicasFindings(
  { service, gpusPerPod, maxReplicas, surge }: GpuPods,
  capacity: number,
  limit: string,
  detail = "",
): readonly string[] {
  const max = capacity - surge;
  const each = `${detail}${gpusPerPod} per pod${surge > 0 ? `, and a rolling update adds ${surge} pod` : ""}`;
  if (max < 1)
    return findingIf(true, limit, `have room for one pod of ${service} (${each})`, capacity);
  return findingIf(
    maxReplicas > max,
    `${service}.autoscaler.maxReplicas`,
    `be at most ${max} to fit ${limit} (${each})`,
    maxReplicas,
  );
}

const gpusOfPod = ({ gpusPerPod }: GpuPods) => gpusPerPod;
