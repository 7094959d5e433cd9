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

/** Seconds that TensorRT may take for the engine of one execution instance. */
const buildSeconds = tritonStartSeconds(true, 1) - tritonStartSeconds(true, 0);

/** A whole number in a range. */
const integer = (min: number, max: number) => z.int().min(min).max(max);
const switchedOn = (on: boolean, description: string) =>
  z.boolean().default(on).describe(description);
const text = (fallback: string, description: string) =>
  z.string().default(fallback).describe(description);
const word = <const Words extends readonly [string, ...string[]]>(
  words: Words,
  fallback: Words[number],
  description: string,
) =>
  z
    .enum(words)
    .default(fallback as never)
    .describe(description);
/** Text or nothing. */
const matching = (pattern: string, description: string) =>
  z
    .string()
    .regex(new RegExp(`^(${pattern})?$`))
    .default("")
    .describe(description);

/** A quantity as Kubernetes writes it: `250m`, `1536Mi`, or a number. */
const quantity = z.union([
  z.string().regex(/^\d+(\.\d+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$/),
  z.number().min(0),
]);
const quantities = z.record(z.string(), quantity);
const stringMap = (description: string) =>
  z.record(z.string(), z.string()).default({}).describe(description);
/** An object of the Kubernetes API that the chart passes on. */
const passedOn = z.record(z.string(), z.unknown());

const image = (repository: string, tag: string, what: string) =>
  z
    .strictObject({
      repository: z.string().min(1).default(repository).describe("Name, with its registry."),
      tag: matching("[\\w][\\w.-]{0,127}", "Not read where there is a digest.").default(tag),
      digest: matching("sha256:[0-9a-f]{64}", "`sha256:…`: an image that nobody can move."),
      pullPolicy: word(["IfNotPresent", "Always", "Never"], "IfNotPresent", "When it is pulled."),
    })
    .prefault({})
    .describe(what);

const resources = (
  requests: { readonly cpu: string; readonly memory: string },
  limits: { readonly cpu: string; readonly memory: string },
) =>
  z
    .strictObject({
      requests: quantities.default({ ...requests }).describe("What a node must have free."),
      limits: quantities.default({ ...limits }).describe("What the pod may use."),
    })
    .prefault({})
    .describe("CPU and memory of one pod. GPUs are not among them: the chart adds those.");

const budget = z
  .strictObject({
    enabled: switchedOn(true, "Whether there is a PodDisruptionBudget."),
    maxUnavailable: integer(1, 1_000)
      .optional()
      .describe("How many pods a drain may take away at once: 1 where `minAvailable` is not set."),
    minAvailable: integer(1, 1_000)
      .optional()
      .describe(
        "How many pods must stay; less than the fewest replicas, or no node can be drained.",
      ),
    unhealthyPodEvictionPolicy: word(
      ["AlwaysAllow", "IfHealthyBudget"],
      "AlwaysAllow",
      "`AlwaysAllow`: a pod that is not ready holds no drain up.",
    ),
  })
  .prefault({})
  .describe("How many pods may be away when nodes are drained.");

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

// Strict: Kubernetes drops what it does not know, and a rule without a `to` is for everybody.
const peer = z.strictObject({
  podSelector: labelSelector.optional(),
  namespaceSelector: labelSelector.optional(),
  ipBlock: z
    .strictObject({ cidr: z.string().min(1), except: z.array(z.string().min(1)).optional() })
    .optional(),
});
const portNumber = integer(1, 65_535);
const egressRule = z.strictObject({
  to: z.array(peer).optional(),
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
    enabled: switchedOn(true, "Whether pods are spread."),
    topologyKey: z
      .string()
      .min(1)
      .default("kubernetes.io/hostname")
      .describe("Label of nodes over whose values they are spread."),
    maxSkew: integer(1, 1_000).default(1).describe("How many more pods one value may have."),
    whenUnsatisfiable: word(
      ["ScheduleAnyway", "DoNotSchedule"],
      "ScheduleAnyway",
      "Whether a pod that cannot be spread waits.",
    ),
  })
  .prefault({})
  .describe("Pods of one Deployment on different nodes.");

/** Where pods run, and what their objects carry. */
const scheduling = {
  runtimeClassName: text(
    "",
    "RuntimeClass of the pods: `nvidia` where the GPU operator does not make it the default.",
  ),
  nodeSelector: stringMap("Labels that a node must have."),
  tolerations: z.array(toleration).default([]).describe("Taints of nodes that the pods accept."),
  affinity: z
    .strictObject({
      nodeAffinity: passedOn.optional().describe("To nodes."),
      podAffinity: passedOn.optional().describe("To pods on the same node."),
      podAntiAffinity: passedOn.optional().describe("Away from pods on the same node."),
    })
    .default({})
    .describe("Affinity of the pods, as Kubernetes has it."),
  topologySpread,
  priorityClassName: text("", "PriorityClass of the pods."),
  podAnnotations: stringMap("Annotations of the pods."),
  podLabels: stringMap("Labels of the pods, besides those of the chart."),
  extraEnv: z
    .array(
      z.strictObject({
        name: z.string().min(1),
        value: z.string().optional(),
        valueFrom: passedOn.optional(),
      }),
    )
    .default([])
    .describe("Environment variables besides those that the chart sets."),
};

const replicas = (count: number) =>
  integer(0, 1_000)
    .default(count)
    .describe("Pods. Not read with autoscaling, which owns the number.");

const scaling = (on: boolean, minReplicas: number, maxReplicas: number) => ({
  enabled: switchedOn(on, "Whether a HorizontalPodAutoscaler sets the number of pods."),
  minReplicas: integer(1, 1_000).default(minReplicas).describe("The fewest pods."),
  maxReplicas: integer(1, 1_000).default(maxReplicas).describe("The most pods."),
  cpuPercent: integer(1, 1_000)
    .default(60)
    .describe("Average CPU of the pods that is aimed at, in percent of what they request."),
  scaleDownWindowSeconds: integer(0, 3_600)
    .default(180)
    .describe("How long the load must be low before pods go."),
  behavior: passedOn
    .optional()
    .describe(
      "`behavior` of the autoscaler in place of the chart's, which adds and removes pods with GPUs one per minute.",
    ),
});

const service = (port: number | undefined) =>
  z
    .strictObject({
      type: word(
        ["ClusterIP", "NodePort", "LoadBalancer"],
        "ClusterIP",
        "Who reaches the Service.",
      ),
      ...(port !== undefined && {
        port: integer(1, 65_535).default(port).describe("Port of the Service."),
        nodePort: integer(nodePortRange.min, nodePortRange.max)
          .optional()
          .describe(
            "Port of the nodes, with `NodePort` or `LoadBalancer`; one that is free without it.",
          ),
      }),
      annotations: stringMap("Annotations of the Service."),
    })
    .prefault({});

const pull = (component: PodComponent) =>
  integer(0, 14_400)
    .default(imagePullSeconds[component])
    .describe(
      "Seconds more, before that, for a node to come, its images and the weights: a rollout has not failed so long.",
    );

const spareGpu = switchedOn(
  false,
  "Whether a GPU is free for one pod more. Without it a rolling update stops a pod before it starts the next.",
);

const embed = z
  .strictObject({
    enabled: switchedOn(true, "Whether the embed server is deployed."),
    image: image(
      "clipstack/embed",
      "k8s-cpu",
      "The embed image; it also fetches and checks weights.",
    ),
    backend: word(
      ["onnxruntime", "triton"],
      "onnxruntime",
      "`onnxruntime`: ONNX Runtime in the embed server. `triton`: gateway to the Tritons of this release.",
    ),
    accelerator: word(
      ["cpu", "gpu"],
      "cpu",
      "What ONNX Runtime computes on with the backend `onnxruntime`; `gpu`, one for each pod, needs an image with CUDA.",
    ),
    spareGpu,
    resources: resources({ cpu: "250m", memory: "1Gi" }, { cpu: "1", memory: "1536Mi" }),
    service: service(embedPort).describe("The Service of the embed server."),
    auth: z
      .strictObject({
        existingSecret: text(
          "",
          "Secret with the key that clients must send as `Authorization: Bearer …`.",
        ),
        existingSecretKey: z.string().min(1).default("api-key").describe("Its entry with the key."),
        allowAnonymous: switchedOn(
          false,
          "Answer everybody although the Service is reached from outside the cluster. A ClusterIP without a Secret asks for no key.",
        ),
      })
      .prefault({})
      .describe("Who may ask."),
    replicas: replicas(2),
    autoscaling: z
      .strictObject(scaling(false, 2, 6))
      .prefault({})
      .describe("Autoscaling on CPU."),
    budget,
    startSeconds: integer(10, 14_400)
      .optional()
      .describe(
        `Seconds that the server may take to start: until the model is loaded, of a gateway until it answers \`/healthz\`; ${startSeconds} without a setting.`,
      ),
    imagePullSeconds: pull("embed"),
    graceSeconds: integer(1, 3_600)
      .default(graceSeconds)
      .describe("Seconds that a stop waits for accepted requests."),
    preStopSeconds: integer(0, 600)
      .default(preStopSeconds)
      .describe("Seconds before a stop in which nodes learn to send nothing more."),
    ...scheduling,
  })
  .prefault({})
  .describe("The embed server: images in, embeddings out.");

const triton = z
  .strictObject({
    enabled: switchedOn(false, "Whether Triton is deployed."),
    server: word(
      ["tritonserver", "emulator"],
      "tritonserver",
      "`tritonserver`: NVIDIA's server. `emulator`: the embed image in its place, on the CPU.",
    ),
    backend: word(["onnxruntime", "tensorrt"], "onnxruntime", "What runs the model."),
    image: image(
      "nvcr.io/nvidia/tritonserver",
      "26.07-py3",
      "Triton's image, with the server `tritonserver`.",
    ),
    gpus: integer(0, 16)
      .default(1)
      .describe("GPUs of one pod; 0 is the CPU. There are model configurations for 0, 1 and 4."),
    spareGpu,
    modelConfig: z
      .strictObject({
        variant: z
          .enum(["", ...modelVariants])
          .default("")
          .describe("Name of the model configuration; empty is the one for `gpus`."),
        text: text("", "The model configuration, whole (`config.pbtxt`); empty is the project's."),
      })
      .prefault({})
      .describe("Triton's configuration of the model. Another text restarts the pods."),
    modelControl: word(
      ["restricted", "open"],
      "restricted",
      "`restricted`: Triton's model control API is off, or, with weights in the image, requires the pod's UID as key. `open`: every client that reaches Triton may load and unload models.",
    ),
    engineCache: z
      .strictObject({
        enabled: switchedOn(false, "Whether TensorRT's engines outlive the pods, on a volume."),
        existingClaim: text("", "PersistentVolumeClaim to use; empty makes one."),
        storageClass: text("", "StorageClass of the claim; empty is the cluster's default."),
        accessMode: word(
          ["ReadWriteOnce", "ReadWriteMany"],
          "ReadWriteOnce",
          "`ReadWriteOnce`: all pods on one node. `ReadWriteMany`: on several.",
        ),
        size: quantity.default("2Gi").describe("Size of the claim."),
      })
      .prefault({})
      .describe(
        "Where TensorRT keeps what it compiled: without a volume each pod builds for minutes.",
      ),
    sharedMemory: quantity
      .default("1Gi")
      .describe("Size of `/dev/shm`, in memory; it counts against the memory limit."),
    resources: resources({ cpu: "2", memory: "4Gi" }, { cpu: "4", memory: "8Gi" }),
    allowUnauthenticated: switchedOn(
      false,
      "Reach Triton from outside the cluster although it asks nobody who they are.",
    ),
    service: service(undefined).describe(
      "The Service of the Tritons. A second one without an address of its own is for gRPC.",
    ),
    replicas: replicas(1),
    autoscaling: z
      .strictObject({
        ...scaling(false, 1, 4),
        metric: word(
          ["queue-time", "cpu"],
          "queue-time",
          "`queue-time`: how long a request waits in Triton's queue. `cpu`: for Tritons without a GPU.",
        ),
        source: word(
          ["keda", "prometheus-adapter"],
          "keda",
          "Who gives the queue time to Kubernetes: KEDA, or the Prometheus adapter with the rule in the chart's README.",
        ),
        targetQueueMilliseconds: integer(1, 60_000)
          .default(50)
          .describe("Average queue time of a request that is aimed at."),
        fallbackReplicas: integer(0, 1_000)
          .optional()
          .describe(
            "Minimum number of pods while KEDA has failed to read the queue time for a minute; `minReplicas` without a setting. More pods than that stay. Needs KEDA 2.18: 0 leaves it out.",
          ),
        prometheus: z
          .strictObject({
            url: matching("https?://\\S+", "Address of Prometheus, with `keda`."),
            query: text(
              "",
              "PromQL of the queue time in milliseconds, one value; empty is the mean over the pods.",
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
        `Seconds that a pod may take until it is ready: ${tritonStartSeconds(false, 1)}, or with TensorRT ${tritonStartSeconds(true, 0)} and ${buildSeconds} for each GPU, on which it builds an engine.`,
      ),
    imagePullSeconds: pull("triton"),
    graceSeconds: integer(1, 3_600)
      .default(graceSeconds)
      .describe("Seconds that a stop waits for requests in flight: `--exit-timeout-secs`."),
    preStopSeconds: integer(0, 600)
      .default(preStopSeconds)
      .describe("Seconds before a stop in which nodes learn to send nothing more."),
    ...scheduling,
  })
  .prefault({})
  .describe("Triton: the Open Inference Protocol over HTTP and gRPC.");

const peers = (description: string) => z.array(peer).default([]).describe(description);

export const chartValues = z.strictObject({
  nameOverride: text("", "Value of `app.kubernetes.io/name` in place of `clipstack`."),
  fullnameOverride: text("", "Beginning of the objects' names in place of the release's."),
  commonLabels: stringMap("Labels of every object."),
  imagePullSecrets: z
    .array(z.strictObject({ name: z.string().min(1) }))
    .default([])
    .describe("Secrets with which images are pulled."),
  serviceAccount: z
    .strictObject({
      create: switchedOn(true, "Whether the chart makes one for each component, without a token."),
      name: text("", "One that is there, for all components."),
      annotations: stringMap("Annotations of those that the chart makes."),
    })
    .prefault({}),
  model: z
    .strictObject({
      weights: word(
        ["image", "pvc", "init"],
        "image",
        "How the weights come to the pods. `image`: the images have them. `pvc`: a volume has them. `init`: fetched when a pod starts.",
      ),
      sha256: matching(
        "[0-9a-f]{64}",
        "Checksum of `model.onnx`: required with `init`, checked with `pvc` where it is given.",
      ),
      pvc: z
        .strictObject({
          claimName: text("", "PersistentVolumeClaim that has `model.onnx`."),
          subPath: text("", "Folder of the volume that has it."),
        })
        .prefault({}),
      init: z
        .strictObject({
          // its form is checked in a template: Helm repeats a value that the schema refuses, with the secrets in it
          url: text(
            "",
            "Where `model.onnx` is fetched from: `http://…` or `https://…`, without a user, a password or a query.",
          ),
          existingSecret: text(
            "",
            "Secret with that address in place of `url`, for one that is signed. On another port than 443 it needs `networkPolicy.egress`.",
          ),
          existingSecretKey: z
            .string()
            .min(1)
            .default("url")
            .describe("Its entry with the address."),
          sizeLimit: quantity
            .default("1Gi")
            .describe(
              "Room for it on the node, and for the form that is run. A longer file is not fetched.",
            ),
          timeoutSeconds: integer(1, 14_400)
            .default(900)
            .describe("Seconds that fetching it may take; then it begins again."),
        })
        .prefault({}),
    })
    .prefault({})
    .describe("The weights of the model."),
  embed,
  triton,
  quota: z
    .strictObject({
      enabled: switchedOn(false, "Whether the namespace gets a ResourceQuota."),
      hard: quantities
        .default({})
        .describe("The most of each resource, like `pods` or `requests.nvidia.com/gpu`."),
    })
    .prefault({})
    .describe("What all pods of the namespace may have together."),
  limitRange: z
    .strictObject({
      enabled: switchedOn(false, "Whether the namespace gets a LimitRange."),
      defaultRequest: quantities
        .default({ cpu: "100m", memory: "128Mi" })
        .describe("Requests of a container that says none."),
      default: quantities
        .default({ cpu: "500m", memory: "512Mi" })
        .describe("Limits of a container that says none."),
      max: quantities.default({}).describe("The most that one may say."),
    })
    .prefault({})
    .describe("What a container gets when it does not say, and the most it may say."),
  networkPolicy: z
    .strictObject({
      enabled: switchedOn(true, "Whether pods take and open only the connections that they need."),
      embedFrom: peers(
        "Who reaches the embed server besides `helm test`, and with `serviceMonitor` those of `metricsFrom`; empty is everybody.",
      ),
      tritonFrom: peers(
        "Who reaches Triton besides the embed server; empty is nobody where there is one.",
      ),
      metricsFrom: peers(
        "Who reads the metrics: of Triton, where empty is everybody in the cluster, and see `embedFrom`.",
      ),
      egress: z
        .array(egressRule)
        .default([])
        .describe("More that pods may connect to: rules of a NetworkPolicy."),
    })
    .prefault({}),
  serviceMonitor: z
    .strictObject({
      enabled: switchedOn(
        false,
        "Whether Prometheus is told to read the metrics: needs its operator.",
      ),
      interval: z
        .string()
        .regex(/^\d+(ms|s|m)$/)
        .default("15s")
        .describe(
          "How often, also where something else tells Prometheus: the queue time looks back four times as long, and one minute at the least.",
        ),
      labels: stringMap("Labels by which a Prometheus finds it."),
    })
    .prefault({}),
  prometheusRule: z
    .strictObject({
      enabled: switchedOn(
        false,
        "Whether Triton's queue time is recorded: needs the Prometheus operator.",
      ),
      labels: stringMap("Labels by which a Prometheus finds it."),
    })
    .prefault({}),
  global: passedOn
    .optional()
    .describe("Read by no template: Helm sets it for charts inside charts."),
});

/** Values as a person or a stack writes them: what is left out has its default. */
export type ChartValues = z.input<typeof chartValues>;
