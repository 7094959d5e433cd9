import { z } from "zod";
import { integer, name } from "./setting-types.ts";

/** Settings shared by the stacks that deploy to Kubernetes. */

export const namespace = name.default("clipstack").describe("Namespace of all deployed objects.");

/** CPU and memory, with their defaults. */
export const quantities = (cpuMillicores: number, memoryMiB: number) =>
  z
    .strictObject({
      cpuMillicores: integer(1, 1_000_000)
        .default(cpuMillicores)
        .describe("CPU, in thousandths of a core."),
      memoryMiB: integer(1, 100_000_000).default(memoryMiB).describe("Memory, in MiB."),
    })
    .prefault({});

type Quantities = ReturnType<typeof quantities>;

export const podResources = (requests: Quantities, limits: Quantities) =>
  z.strictObject({ requests, limits }).prefault({}).describe("Resources of one pod.");

/** Fields of a ResourceQuota that every namespace has. */
export const quotaFields = (requests: Quantities, limits: Quantities, pods: number) => ({
  requests,
  limits,
  pods: integer(1, 10_000).default(pods).describe("Maximum number of pods in the namespace."),
});

export const disruptionBudget = z
  .strictObject({
    maxUnavailable: integer(0, 1_000)
      .optional()
      .describe("Maximum number of unavailable pods; less than minReplicas unless that is 1."),
    minAvailable: integer(1, 1_000)
      .optional()
      .describe("Minimum number of available pods; less than minReplicas."),
  })
  .default({ maxUnavailable: 1 })
  .describe("PodDisruptionBudget, which a node drain respects: one of the two keys.");

/** Autoscaler on CPU utilisation. With equal minimum and maximum, the number of pods is fixed. */
export const cpuScaling = (minReplicas: number, maxReplicas: number) => ({
  minReplicas: integer(1, 1_000).default(minReplicas).describe("Minimum number of pods."),
  maxReplicas: integer(1, 1_000)
    .default(maxReplicas)
    .describe(
      "Maximum number of pods; these and the pods that a rolling update adds must fit the quota. If equal to minReplicas, there is no autoscaler.",
    ),
  cpuPercent: integer(1, 1_000)
    .default(60)
    .describe("Target CPU utilisation of the pods, in percent of their requests."),
  scaleDownWindowSeconds: integer(0, 3_600)
    .default(180)
    .describe("Time that the load must stay low before pods are removed."),
});
