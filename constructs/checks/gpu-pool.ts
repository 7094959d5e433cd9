import type { Finding } from "./findings.ts";

/** GPU nodes of a cluster, as the settings declare them. */
export interface GpuPool {
  readonly nodes: number;
  readonly gpusPerNode: number;
}

/** Pods of one Deployment that hold GPUs. */
export interface GpuPods {
  /** `embed` or `triton`: the beginning of its settings. */
  readonly service: string;
  readonly gpusPerPod: number;
  readonly maxReplicas: number;
  /** Pods that a rolling update starts before it stops others. */
  readonly surge: number;
}

/** A pod that no node can hold: its GPUs are all on one node. */
export function gpusPerPodFindings(
  { service, gpusPerPod }: GpuPods,
  { gpusPerNode }: GpuPool,
): readonly Finding[] {
  return gpusPerPod <= gpusPerNode
    ? []
    : [
        {
          path: `${service}.gpusPerPod`,
          must: `be at most nodePool.gpusPerNode (${gpusPerNode}): the GPUs of a pod are on one node`,
          got: String(gpusPerPod),
        },
      ];
}

/**
 * More pods than the nodes hold, counting those that a rolling update adds: they would wait for a GPU that never comes. A
 * node of 8 GPUs holds two pods of 3, not 8/3 of them.
 *
 * Says nothing of a pod that no node can hold.
 */
export function poolFindings(workloads: readonly GpuPods[], pool: GpuPool): readonly Finding[] {
  const { nodes, gpusPerNode } = pool;
  const fitting = workloads.filter((pods) => gpusPerPodFindings(pods, pool).length === 0);
  const alone = fitting.flatMap((pods) => {
    const most = nodes * Math.floor(gpusPerNode / pods.gpusPerPod);
    return tooMany(pods, most, "nodePool", `${nodes} × ${gpusPerNode} GPUs, `);
  });
  return alone.length > 0
    ? alone
    : together(fitting, nodes * gpusPerNode, "nodePool.nodes × nodePool.gpusPerNode");
}

/** More GPUs than the quota of the namespace admits: the API server would refuse the pods. */
export function gpuQuotaFindings(workloads: readonly GpuPods[], gpus: number): readonly Finding[] {
  const alone = workloads.flatMap((pods) =>
    tooMany(pods, Math.floor(gpus / pods.gpusPerPod), `quota.gpus ${gpus}`),
  );
  return alone.length > 0 ? alone : together(workloads, gpus, "quota.gpus");
}

/**
 * @param room - Pods that there is room for.
 * @param detail - Of that room.
 */
function tooMany(
  { service, gpusPerPod, maxReplicas, surge }: GpuPods,
  room: number,
  what: string,
  detail = "",
): readonly Finding[] {
  const most = room - surge;
  if (maxReplicas <= most) return [];
  const each = `${detail}${gpusPerPod} a pod${surge > 0 ? `, and a rolling update adds ${surge} pod` : ""}`;
  return [
    most < 1
      ? { path: what, must: `have room for one pod of ${service} (${each})`, got: String(room) }
      : {
          path: `${service}.autoscaler.maxReplicas`,
          must: `be at most ${most} to fit ${what} (${each})`,
          got: String(maxReplicas),
        },
  ];
}

function together(workloads: readonly GpuPods[], gpus: number, what: string): readonly Finding[] {
  const parts = workloads.map(({ service, gpusPerPod, maxReplicas, surge }) => ({
    text: `${service} ${maxReplicas + surge} × ${gpusPerPod}`,
    gpus: (maxReplicas + surge) * gpusPerPod,
  }));
  const needed = parts.reduce((sum, part) => sum + part.gpus, 0);
  if (needed <= gpus) return [];
  return [
    {
      path: what,
      must: `be at least ${needed} (${parts.map(({ text }) => text).join(" + ")})`,
      got: String(gpus),
    },
  ];
}
