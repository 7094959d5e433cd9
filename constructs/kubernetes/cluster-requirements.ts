import { z } from "zod";

/**
 * Requirements of an environment for an existing cluster. `ClusterCheck` writes them into the artefact, and `clipstack doctor`
 * checks the cluster against them. They contain no secret and no value that only Terraform can resolve.
 */

/** Environment variable in which Terraform passes the requirements to `clipstack doctor`. */
export const clusterRequirementsVariable = "CLIPSTACK_CLUSTER_REQUIREMENTS";

const toleration = z.strictObject({
  key: z.string(),
  operator: z.enum(["Equal", "Exists"]),
  value: z.string().optional(),
  effect: z.string().optional(),
});

/** Schema of the requirements. */
export const clusterRequirements = z.strictObject({
  /** Version of the format, incremented when the meaning of a field changes. */
  schema: z.literal(1),
  environment: z.string().min(1),
  /** Path of the kubeconfig as in the settings; `~` is the home folder. */
  kubeconfig: z.string().min(1),
  context: z.string().min(1),
  namespace: z.string().min(1),
  /** Whether the environment creates the namespace. */
  createNamespace: z.boolean(),
  /** GPU nodes; absent if the services run on the CPU. */
  gpu: z
    .strictObject({
      /** NVIDIA's name of the GPU. */
      label: z.string().min(1),
      vramMiB: z.int().min(1),
      nodes: z.int().min(1),
      gpusPerNode: z.int().min(1),
      /** Resource that pods request if each has a part of a GPU; absent for whole GPUs. */
      resourceName: z.string().min(1).optional(),
      /** GPUs of all pods at their maximum. */
      gpus: z.int().min(0),
      /** GPUs of all pods at their minimum. */
      gpusAtLeast: z.int().min(0),
      /** RuntimeClass of the pods; absent for the default runtime of the nodes. */
      runtimeClass: z.string().min(1).optional(),
      selector: z.record(z.string(), z.string()),
      tolerations: z.array(toleration),
    })
    .optional(),
  /** APIs that the API server must serve in addition to those of Kubernetes. */
  apis: z.array(
    z.strictObject({
      /** Group and version: `keda.sh/v1alpha1`. */
      groupVersion: z.string().min(1),
      /** Setting that requires the API: `triton.autoscaler.source keda`. */
      setting: z.string().min(1),
      /** Program that serves the API: `KEDA`. */
      program: z.string().min(1),
    }),
  ),
  /** Objects that must exist in the namespace. */
  objects: z.array(
    z.strictObject({
      kind: z.enum(["secret", "persistentvolumeclaim"]),
      name: z.string().min(1),
      /** Setting that names the object: `embed.keySecret`. */
      setting: z.string().min(1),
      /** Only for a volume: how many pods mount it at once, at most, and on how many nodes they run, at least. */
      mountedBy: z.strictObject({ pods: z.int().min(0), nodes: z.int().min(1) }).optional(),
    }),
  ),
  /** Labels that Prometheus must select; absent without a ServiceMonitor. */
  serviceMonitor: z.strictObject({ labels: z.record(z.string(), z.string()) }).optional(),
});
export type ClusterRequirements = z.infer<typeof clusterRequirements>;
