import { z } from "zod";
import { modelVariants } from "../../contract/model-config.ts";
import {
  graceSeconds,
  imagePullSeconds,
  type PodComponent,
  preStopSeconds,
  startSeconds,
} from "../../contract/pods.ts";
import { embedPort, nodePortRange } from "../../contract/ports.ts";
import { tritonStartSeconds } from "../triton-times.ts";

/**
 * The values of the Helm chart `helm/clipstack`. Its `values.yaml`, its `values.schema.json` and the table of its README are
 * rendered from this schema (`npm run render`); values of the stacks are checked with it.
 */

/** Maximum time of TensorRT to build the engine of one execution instance, in seconds. */
const buildSeconds = tritonStartSeconds(true, 1) - tritonStartSeconds(true, 0);

/** A whole number in a range. */
const integer = (min: number, max: number) => z.int().min(min).max(max);
const flag = (on: boolean, description: string) => z.boolean().default(on).describe(description);
const text = (fallback: string, description: string) =>
  z.string().default(fallback).describe(description);
const choice = <const Words extends readonly [string, ...string[]]>(
  words: Words,
  fallback: Words[number],
  description: string,
) =>
  z
    .enum(words)
    .default(fallback as never)
    .describe(description);
/** Text that matches a pattern, or empty. */
const matching = (pattern: string, description: string) =>
  z
    .string()
    .regex(new RegExp(`^(${pattern})?$`))
    .default("")
    .describe(description);

/** Kubernetes quantity: `250m`, `1536Mi`, or a number. */
const quantity = z.union([
  z.string().regex(/^\d+(\.\d+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$/),
  z.number().min(0),
]);
const quantities = z.record(z.string(), quantity);
const stringMap = (description: string) =>
  z.record(z.string(), z.string()).default({}).describe(description);
/** Object of the Kubernetes API that the chart does not inspect. */
const kubernetesObject = z.record(z.string(), z.unknown());

const image = (repository: string, tag: string, what: string) =>
  z
    .strictObject({
      repository: z.string().min(1).default(repository).describe("Name, including the registry."),
      tag: matching("[\\w][\\w.-]{0,127}", "Tag; ignored if a digest is set.").default(tag),
      digest: matching("sha256:[0-9a-f]{64}", "Digest, `sha256:…`, which pins the image."),
      pullPolicy: choice(["IfNotPresent", "Always", "Never"], "IfNotPresent", "Image pull policy."),
    })
    .prefault({})
    .describe(what);

const resources = (
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

const budget = z
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

const labelSelector = z.strictObject({
  matchLabels: z.record(z.string(), z.string()).optional(),
  matchExpressions: z
    .array(
      z.strictObject({
        key: z.string().min(1),
        operator: z.enum(["In", "NotIn", "Exists", "DoesNotExist"]),
        values: z.array(z.string()).optional(),
      }),
    )
    .optional(),
});

// Strict: Kubernetes ignores unknown fields, and a rule without `to` allows all destinations.
const networkPeer = z.strictObject({
  podSelector: labelSelector.optional(),
  namespaceSelector: labelSelector.optional(),
  ipBlock: z
    .strictObject({ cidr: z.string().min(1), except: z.array(z.string().min(1)).optional() })
    .optional(),
});
const portNumber = integer(1, 65_535);
const egressRule = z.strictObject({
  to: z.array(networkPeer).optional(),
  ports: z
    .array(
      z.strictObject({
        protocol: z.enum(["TCP", "UDP", "SCTP"]).optional(),
        port: z.union([portNumber, z.string().min(1)]).optional(),
        endPort: portNumber.optional(),
      }),
    )
    .optional(),
});

const toleration = z.strictObject({
  key: z.string().optional(),
  operator: z.enum(["Equal", "Exists"]).optional(),
  value: z.string().optional(),
  effect: z.enum(["NoSchedule", "PreferNoSchedule", "NoExecute"]).optional(),
  tolerationSeconds: z.int().optional(),
});

const topologySpread = z
  .strictObject({
    enabled: flag(true, "Whether pods are spread over nodes."),
    topologyKey: z
      .string()
      .min(1)
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

/** Scheduling, annotations and labels of pods. */
const scheduling = {
  runtimeClassName: text(
    "",
    "RuntimeClass of the pods: `nvidia` unless it is the default on the GPU nodes.",
  ),
  nodeSelector: stringMap("Required node labels."),
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
  priorityClassName: text("", "PriorityClass of the pods."),
  podAnnotations: stringMap("Annotations of the pods."),
  podLabels: stringMap("Additional labels of the pods."),
  extraEnv: z
    .array(
      z.strictObject({
        name: z.string().min(1),
        value: z.string().optional(),
        valueFrom: kubernetesObject.optional(),
      }),
    )
    .default([])
    .describe("Additional environment variables."),
};

const replicas = (count: number) =>
  integer(0, 1_000).default(count).describe("Number of pods; ignored with autoscaling.");

const scaling = (on: boolean, minReplicas: number, maxReplicas: number) => ({
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
      "`behavior` of the autoscaler, instead of the chart's, which adds and removes pods with GPUs one per minute.",
    ),
});

const service = (port: number | undefined) =>
  z
    .strictObject({
      type: choice(["ClusterIP", "NodePort", "LoadBalancer"], "ClusterIP", "Type of the Service."),
      ...(port !== undefined && {
        port: integer(1, 65_535).default(port).describe("Port of the Service."),
        nodePort: integer(nodePortRange.min, nodePortRange.max)
          .optional()
          .describe("Node port, with `NodePort` or `LoadBalancer`; a free one if not set."),
      }),
      annotations: stringMap("Annotations of the Service."),
    })
    .prefault({});

const imagePull = (component: PodComponent) =>
  integer(0, 14_400)
    .default(imagePullSeconds[component])
    .describe(
      "Additional seconds before a rollout counts as failed: provisioning a node, pulling images, loading weights.",
    );

const spareGpu = flag(
  false,
  "Whether the cluster has a spare GPU for a rolling update. Otherwise an update stops a pod before it starts the next.",
);

const embed = z
  .strictObject({
    enabled: flag(true, "Whether the embed server is deployed."),
    image: image(
      "clipstack/embed",
      "k8s-cpu",
      "Embed image; it also downloads and verifies weights.",
    ),
    backend: choice(
      ["onnxruntime", "triton"],
      "onnxruntime",
      "`onnxruntime`: ONNX Runtime in the embed server. `triton`: gateway to the Tritons of this release.",
    ),
    accelerator: choice(
      ["cpu", "gpu"],
      "cpu",
      "Device of the backend `onnxruntime`; `gpu`, one per pod, requires an image with CUDA.",
    ),
    spareGpu,
    resources: resources({ cpu: "250m", memory: "1Gi" }, { cpu: "1", memory: "1536Mi" }),
    service: service(embedPort).describe("Service of the embed server."),
    auth: z
      .strictObject({
        existingSecret: text("", "Secret with the bearer token required from clients."),
        existingSecretKey: z
          .string()
          .min(1)
          .default("api-key")
          .describe("Key of the token in the Secret."),
        allowAnonymous: flag(
          false,
          "Whether a Service reachable from outside the cluster may have no authentication. A ClusterIP without a Secret has none.",
        ),
      })
      .prefault({})
      .describe("Authentication."),
    replicas: replicas(2),
    autoscaling: z
      .strictObject(scaling(false, 2, 6))
      .prefault({})
      .describe("Autoscaling on CPU."),
    budget,
    startSeconds: integer(10, 14_400)
      .optional()
      .describe(
        `Maximum start time in seconds, until the model is loaded or a gateway responds to \`/healthz\`; by default ${startSeconds}.`,
      ),
    imagePullSeconds: imagePull("embed"),
    graceSeconds: integer(1, 3_600)
      .default(graceSeconds)
      .describe("Maximum time to drain accepted requests, in seconds."),
    preStopSeconds: integer(0, 600)
      .default(preStopSeconds)
      .describe("Time before a stop in which the endpoints are removed, in seconds."),
    ...scheduling,
  })
  .prefault({})
  .describe("Embed server: image files in, embeddings out.");

const triton = z
  .strictObject({
    enabled: flag(false, "Whether Triton is deployed."),
    server: choice(
      ["tritonserver", "emulator"],
      "tritonserver",
      "`tritonserver`: NVIDIA's server. `emulator`: Triton emulator in the embed image, on the CPU.",
    ),
    backend: choice(["onnxruntime", "tensorrt"], "onnxruntime", "Backend of the model."),
    image: image(
      "nvcr.io/nvidia/tritonserver",
      "26.07-py3",
      "Triton's image, with the server `tritonserver`.",
    ),
    gpus: integer(0, 16)
      .default(1)
      .describe(
        "Number of GPUs per pod; 0 is the CPU. The chart has model configurations for 0, 1 and 4.",
      ),
    spareGpu,
    modelConfig: z
      .strictObject({
        variant: z
          .enum(["", ...modelVariants])
          .default("")
          .describe("Name of the model configuration; empty selects the one for `gpus`."),
        text: text("", "Complete model configuration (`config.pbtxt`); empty selects the chart's."),
      })
      .prefault({})
      .describe("Triton's model configuration. A change restarts the pods."),
    modelControl: choice(
      ["restricted", "open"],
      "restricted",
      "`restricted`: Triton's model control API is off, or, with weights in the image, requires the pod's UID as key. `open`: every client may load and unload models.",
    ),
    engineCache: z
      .strictObject({
        enabled: flag(false, "Whether TensorRT engines are cached on a volume."),
        existingClaim: text("", "Existing PersistentVolumeClaim; empty creates one."),
        storageClass: text("", "StorageClass of the claim; empty selects the cluster's default."),
        accessMode: choice(
          ["ReadWriteOnce", "ReadWriteMany"],
          "ReadWriteOnce",
          "`ReadWriteOnce`: all pods on one node. `ReadWriteMany`: on several nodes.",
        ),
        size: quantity.default("2Gi").describe("Size of the claim."),
      })
      .prefault({})
      .describe("TensorRT engine cache: without it every pod builds engines for minutes."),
    sharedMemory: quantity
      .default("1Gi")
      .describe("Size of `/dev/shm`, which counts towards the memory limit."),
    resources: resources({ cpu: "2", memory: "4Gi" }, { cpu: "4", memory: "8Gi" }),
    allowUnauthenticated: flag(
      false,
      "Whether Triton, which has no authentication, may be reachable from outside the cluster.",
    ),
    service: service(undefined).describe(
      "Service of the Tritons. A second, headless Service is for gRPC.",
    ),
    replicas: replicas(1),
    autoscaling: z
      .strictObject({
        ...scaling(false, 1, 4),
        metric: choice(
          ["queue-time", "cpu"],
          "queue-time",
          "`queue-time`: time of a request in Triton's queue. `cpu`: for Tritons without a GPU.",
        ),
        source: choice(
          ["keda", "prometheus-adapter"],
          "keda",
          "Source of the queue time: KEDA, or the Prometheus adapter with the rule in the chart's README.",
        ),
        targetQueueMilliseconds: integer(1, 60_000)
          .default(50)
          .describe("Target average queue time of a request, in milliseconds."),
        fallbackReplicas: integer(0, 1_000)
          .optional()
          .describe(
            "Minimum number of pods while KEDA has failed to read the queue time for a minute; by default `minReplicas`. Additional pods stay. Requires KEDA 2.18: 0 disables it.",
          ),
        prometheus: z
          .strictObject({
            url: matching("https?://\\S+", "Address of Prometheus, with `keda`."),
            query: text(
              "",
              "PromQL query of the queue time in milliseconds, one value; empty selects the mean over the pods.",
            ),
          })
          .prefault({}),
      })
      .prefault({})
      .describe("Autoscaling on queue time or CPU."),
    budget,
    startSeconds: integer(10, 14_400)
      .optional()
      .describe(
        `Maximum time in seconds until a pod is ready: ${tritonStartSeconds(false, 1)}, or with TensorRT ${tritonStartSeconds(true, 0)} and ${buildSeconds} per GPU to build an engine.`,
      ),
    imagePullSeconds: imagePull("triton"),
    graceSeconds: integer(1, 3_600)
      .default(graceSeconds)
      .describe("Maximum time to drain requests in flight, in seconds: `--exit-timeout-secs`."),
    preStopSeconds: integer(0, 600)
      .default(preStopSeconds)
      .describe("Time before a stop in which the endpoints are removed, in seconds."),
    ...scheduling,
  })
  .prefault({})
  .describe("Triton: the Open Inference Protocol over HTTP and gRPC.");

const networkPeers = (description: string) =>
  z.array(networkPeer).default([]).describe(description);

export const chartValues = z.strictObject({
  nameOverride: text("", "Value of `app.kubernetes.io/name`, instead of `clipstack`."),
  fullnameOverride: text("", "Prefix of the object names, instead of the release name."),
  commonLabels: stringMap("Labels of every object."),
  imagePullSecrets: z
    .array(z.strictObject({ name: z.string().min(1) }))
    .default([])
    .describe("Image pull secrets."),
  serviceAccount: z
    .strictObject({
      create: flag(
        true,
        "Whether the chart creates a service account per component, without a token.",
      ),
      name: text("", "Existing service account for all components."),
      annotations: stringMap("Annotations of the created service accounts."),
    })
    .prefault({}),
  model: z
    .strictObject({
      weights: choice(
        ["image", "pvc", "init"],
        "image",
        "Source of the weights. `image`: in the images. `pvc`: on a volume. `init`: downloaded when a pod starts.",
      ),
      sha256: matching(
        "[0-9a-f]{64}",
        "SHA-256 of `model.onnx`: required with `init`, verified with `pvc` if set.",
      ),
      pvc: z
        .strictObject({
          claimName: text("", "PersistentVolumeClaim with `model.onnx`."),
          subPath: text("", "Folder of `model.onnx` on the volume."),
        })
        .prefault({}),
      init: z
        .strictObject({
          // validated in a template, because Helm prints values that the schema rejects, including secrets in a URL
          url: text(
            "",
            "URL of `model.onnx`: `http://…` or `https://…`, without user, password or query.",
          ),
          existingSecret: text(
            "",
            "Secret with a signed URL, instead of `url`. A port other than 443 requires `networkPolicy.egress`.",
          ),
          existingSecretKey: z
            .string()
            .min(1)
            .default("url")
            .describe("Key of the URL in the Secret."),
          sizeLimit: quantity
            .default("1Gi")
            .describe(
              "Disk space on the node for the download and the optimised model. A larger file is rejected.",
            ),
          timeoutSeconds: integer(1, 14_400)
            .default(900)
            .describe("Maximum download time in seconds, after which the download is retried."),
        })
        .prefault({}),
    })
    .prefault({})
    .describe("Weights of the model."),
  embed,
  triton,
  quota: z
    .strictObject({
      enabled: flag(false, "Whether the chart creates a ResourceQuota."),
      hard: quantities
        .default({})
        .describe("Limit per resource, such as `pods` or `requests.nvidia.com/gpu`."),
    })
    .prefault({})
    .describe("ResourceQuota of the namespace."),
  limitRange: z
    .strictObject({
      enabled: flag(false, "Whether the chart creates a LimitRange."),
      defaultRequest: quantities
        .default({ cpu: "100m", memory: "128Mi" })
        .describe("Requests of a container without requests."),
      default: quantities
        .default({ cpu: "500m", memory: "512Mi" })
        .describe("Limits of a container without limits."),
      max: quantities.default({}).describe("Maximum limits of a container."),
    })
    .prefault({})
    .describe("LimitRange of the namespace: defaults and maximum of a container."),
  networkPolicy: z
    .strictObject({
      enabled: flag(true, "Whether NetworkPolicies allow only the required connections."),
      embedFrom: networkPeers(
        "Peers that may connect to the embed server, besides `helm test` and, with `serviceMonitor`, `metricsFrom`; empty allows all.",
      ),
      tritonFrom: networkPeers(
        "Peers that may connect to Triton, besides the embed server; with an embed server, empty allows no others.",
      ),
      metricsFrom: networkPeers(
        "Peers that may read metrics: of Triton, for which empty allows all pods of the cluster, and of the embed server, see `embedFrom`.",
      ),
      egress: z
        .array(egressRule)
        .default([])
        .describe("Additional egress rules of the NetworkPolicies."),
    })
    .prefault({}),
  serviceMonitor: z
    .strictObject({
      enabled: flag(
        false,
        "Whether the chart creates a ServiceMonitor, which requires the Prometheus operator.",
      ),
      interval: z
        .string()
        .regex(/^\d+(ms|s|m)$/)
        .default("15s")
        .describe(
          "Scrape interval, also without a ServiceMonitor: the queue time is averaged over four intervals, at least one minute.",
        ),
      labels: stringMap("Labels by which Prometheus selects the object."),
    })
    .prefault({}),
  prometheusRule: z
    .strictObject({
      enabled: flag(
        false,
        "Whether the chart creates a PrometheusRule that records Triton's queue time; requires the Prometheus operator.",
      ),
      labels: stringMap("Labels by which Prometheus selects the object."),
    })
    .prefault({}),
  global: kubernetesObject.optional().describe("Set by Helm for subcharts; no template reads it."),
});

/** Values before defaults are applied. */
export type ChartValues = z.input<typeof chartValues>;
