import { z } from "zod";

/**
 * What an environment needs of a cluster that is there already, as plain data: `ClusterCheck` writes it into the artefact, and
 * `clipstack doctor` judges a cluster by it. Nothing in it is a secret, or known to Terraform only.
 */

/** Variable in which Terraform hands the requirements to `clipstack doctor`. */
export const clusterRequirementsVariable = "CLIPSTACK_CLUSTER_REQUIREMENTS";

const toleration = z.strictObject({
  key: z.string(),
  operator: z.enum(["Equal", "Exists"]),
  value: z.string().optional(),
  effect: z.string().optional(),
});

export const clusterRequirements = z.strictObject({
  /** Bumped when a field changes meaning. */
  schema: z.literal(1),
  environment: z.string().min(1),
  /** File, as the settings name it: `~` is the home folder. */
  kubeconfig: z.string().min(1),
  context: z.string().min(1),
  namespace: z.string().min(1),
  /** Whether the environment makes the namespace. */
  createNamespace: z.boolean(),
  /** Absent where the services compute on CPU. */
  gpu: z
    .strictObject({
      /** As NVIDIA writes it. */
      label: z.string().min(1),
      vramMiB: z.int().min(1),
      nodes: z.int().min(1),
      gpusPerNode: z.int().min(1),
      /** GPUs of all pods at their maximum. */
      gpus: z.int().min(0),
      /** GPUs of all pods at their minimum. */
      gpusAtLeast: z.int().min(0),
      /** Absent where it is what the nodes run pods with by default. */
      runtimeClass: z.string().min(1).optional(),
      selector: z.record(z.string(), z.string()),
      tolerations: z.array(toleration),
    })
    .optional(),
  /** What else the API server must serve. */
  apis: z.array(
    z.strictObject({
      /** `keda.sh/v1alpha1` */
      groupVersion: z.string().min(1),
      /** Setting that asks for it: `triton.autoscaler.source keda`. */
      setting: z.string().min(1),
      /** What serves it: `KEDA`. */
      program: z.string().min(1),
    }),
  ),
  /** What must be in the namespace before. */
  objects: z.array(
    z.strictObject({
      kind: z.enum(["secret", "persistentvolumeclaim"]),
      name: z.string().min(1),
      /** Setting that names it: `embed.keySecret`. */
      setting: z.string().min(1),
      /** Of a volume: the most pods that mount it at once, and the fewest nodes that hold them. */
      mountedBy: z.strictObject({ pods: z.int().min(0), nodes: z.int().min(1) }).optional(),
    }),
  ),
  /** What a Prometheus must look for. Absent where there is no ServiceMonitor. */
  serviceMonitor: z.strictObject({ labels: z.record(z.string(), z.string()) }).optional(),
});
export type ClusterRequirements = z.infer<typeof clusterRequirements>;
