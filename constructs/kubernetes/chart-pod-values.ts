import { z } from "zod";
import { imagePullSeconds, type PodComponent } from "../../contract/pods.ts";
import { nodePortRange } from "../../contract/ports.ts";
import {
  annotations,
  choice,
  flag,
  integer,
  kubernetesObject,
  labelKey,
  labels,
  labelValue,
  matching,
  quantities,
  reference,
} from "./chart-value-fields.ts";

/** Chart values that the embed server and Triton share. */

export const image = (repository: string, tag: string, description: string) =>
  z
    .strictObject({
      repository: z
        .string()
        .regex(/^\w[\w./:-]*$/)
        .default(repository)
        .describe("Name, including the registry."),
      tag: matching("[\\w][\\w.-]{0,127}", "Tag; ignored if a digest is set.").default(tag),
      digest: matching("sha256:[0-9a-f]{64}", "Digest, `sha256:…`, which pins the image."),
      pullPolicy: choice(["IfNotPresent", "Always", "Never"], "IfNotPresent", "Image pull policy."),
    })
    .prefault({})
    .describe(description);

export const resources = (
  requests: { readonly cpu: string; readonly memory: string },
  limits: { readonly cpu: string; readonly memory: string },
) =>
  z
    .strictObject({
      requests: quantities.default({ ...requests }).describe("Resource requests."),
      limits: quantities.default({ ...limits }).describe("Resource limits."),
    })
    .prefault({})
    .describe("CPU and memory of one pod. The chart adds the GPUs.");

export const budget = z
  .strictObject({
    enabled: flag(true, "Whether the chart creates a PodDisruptionBudget."),
    maxUnavailable: integer(1, 1_000)
      .optional()
      .describe("Maximum number of unavailable pods; 1 if `minAvailable` is not set."),
    minAvailable: integer(1, 1_000)
      .optional()
      .describe(
        "Minimum number of available pods; less than the minimum replicas, otherwise no node can be drained.",
      ),
    unhealthyPodEvictionPolicy: choice(
      ["AlwaysAllow", "IfHealthyBudget"],
      "AlwaysAllow",
      "`AlwaysAllow`: a pod that is not ready does not block a drain.",
    ),
  })
  .prefault({})
  .describe("PodDisruptionBudget.");

const toleration = z.strictObject({
  key: labelKey.optional(),
  operator: z.enum(["Equal", "Exists"]).optional(),
  value: labelValue.optional(),
  effect: z.enum(["NoSchedule", "PreferNoSchedule", "NoExecute"]).optional(),
  tolerationSeconds: z.int().optional(),
});

const topologySpread = z
  .strictObject({
    enabled: flag(true, "Whether pods are spread over nodes."),
    topologyKey: labelKey
      .default("kubernetes.io/hostname")
      .describe("Node label that defines the topology domains."),
    maxSkew: integer(1, 1_000)
      .default(1)
      .describe("Maximum difference in pods between two domains."),
    whenUnsatisfiable: choice(
      ["ScheduleAnyway", "DoNotSchedule"],
      "ScheduleAnyway",
      "Scheduling of a pod that would exceed `maxSkew`.",
    ),
  })
  .prefault({})
  .describe("Topology spread constraint of the pods of one Deployment.");

export const scheduling = {
  runtimeClassName: reference(
    "RuntimeClass of the pods: `nvidia` unless it is the default on the GPU nodes.",
  ),
  nodeSelector: labels("Required node labels."),
  tolerations: z.array(toleration).default([]).describe("Tolerations of the pods."),
  affinity: z
    .strictObject({
      nodeAffinity: kubernetesObject.optional().describe("Affinity to nodes."),
      podAffinity: kubernetesObject.optional().describe("Affinity to other pods."),
      podAntiAffinity: kubernetesObject.optional().describe("Anti-affinity to other pods."),
    })
    .default({})
    .describe("Affinity of the pods."),
  topologySpread,
  priorityClassName: reference("PriorityClass of the pods."),
  queueName: labelValue.default("").describe("LocalQueue of Kueue that admits the pods."),
  resourceClaimTemplate: reference(
    "ResourceClaimTemplate of the GPUs of a pod (dynamic resource allocation), instead of `gpuResourceName`.",
  ),
  podAnnotations: annotations("Annotations of the pods."),
  podLabels: labels("Additional labels of the pods."),
  extraEnv: z
    .array(
      z.strictObject({
        name: z.string().regex(/^[-._a-zA-Z][-._a-zA-Z0-9]*$/),
        value: z.string().optional(),
        valueFrom: kubernetesObject.optional(),
      }),
    )
    .default([])
    .describe("Additional environment variables."),
  extraVolumes: z.array(kubernetesObject).default([]).describe("Additional volumes of the pods."),
  extraVolumeMounts: z
    .array(
      z.strictObject({
        name: z.string().min(1),
        mountPath: z.string().regex(/^\/[^:]*$/),
        subPath: z.string().optional(),
        readOnly: z.boolean().optional(),
      }),
    )
    .default([])
    .describe("Mounts of `extraVolumes` in the container of the server."),
  extraContainers: z
    .array(kubernetesObject)
    .default([])
    .describe(
      "Additional containers of the pods. Those of a quota or a LimitRange need `resources`.",
    ),
};

export const replicas = (count: number) =>
  integer(0, 1_000).default(count).describe("Number of pods; ignored with autoscaling.");

export const scaling = (on: boolean, minReplicas: number, maxReplicas: number) => ({
  enabled: flag(on, "Whether a HorizontalPodAutoscaler sets the number of pods."),
  minReplicas: integer(1, 1_000).default(minReplicas).describe("Minimum number of pods."),
  maxReplicas: integer(1, 1_000).default(maxReplicas).describe("Maximum number of pods."),
  cpuPercent: integer(1, 1_000)
    .default(60)
    .describe("Target average CPU utilisation, in percent of the requests."),
  scaleDownWindowSeconds: integer(0, 3_600)
    .default(180)
    .describe("Scale-down stabilisation window, in seconds."),
  behavior: kubernetesObject
    .optional()
    .describe(
      "`behavior` of the autoscaler; by default, pods with GPUs are added and removed one per minute.",
    ),
});

/** Service of a component; without `port`, its ports are fixed. */
export const service = (port: number | undefined) =>
  z
    .strictObject({
      type: choice(["ClusterIP", "NodePort", "LoadBalancer"], "ClusterIP", "Type of the Service."),
      ...(port !== undefined && {
        port: integer(1, 65_535).default(port).describe("Port of the Service."),
        nodePort: integer(nodePortRange.min, nodePortRange.max)
          .optional()
          .describe(
            "Node port, with `NodePort` or `LoadBalancer`; Kubernetes selects one if not set.",
          ),
      }),
      annotations: annotations("Annotations of the Service."),
      loadBalancerClass: matching(
        "[\\w./-]+",
        "Implementation of the load balancer, with `LoadBalancer`; empty selects the cluster's.",
      ),
      loadBalancerSourceRanges: z
        .array(z.string().regex(/^[0-9a-fA-F.:]+\/\d{1,3}$/))
        .default([])
        .describe(
          "Address ranges that the load balancer admits, with `LoadBalancer`; empty admits all.",
        ),
      externalTrafficPolicy: choice(
        ["Cluster", "Local"],
        "Cluster",
        "`Local`: the pods see the address of the client, and only nodes with a pod receive requests; with `NodePort` and `LoadBalancer`.",
      ),
    })
    .prefault({});

/** Permission to send requests in clear text, which the review of a change accepts too. */
export const allowPlaintext = (what: string) =>
  flag(false, `${what} For a private network, or a load balancer that has the certificate.`);

export const imagePull = (component: PodComponent) =>
  integer(0, 14_400)
    .default(imagePullSeconds[component])
    .describe(
      "Additional time before a rollout counts as failed, in seconds: for provisioning a node, pulling images and loading weights.",
    );

export const spareGpu = flag(
  false,
  "Whether the cluster has a spare GPU for a rolling update. Otherwise an update stops a pod before it starts the next.",
);
