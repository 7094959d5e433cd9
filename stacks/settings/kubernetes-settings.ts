import { z } from "zod";
import { chartValues } from "../../constructs/kubernetes/chart-values.ts";
import { gpuModel, gpuModelText, gpuResource, maxGpus } from "../../contract/gpus.ts";
import { rule } from "../../contract/issue-lines.ts";
import {
  labelKeyPattern,
  labelValuePattern,
  objectNamePattern,
} from "../../contract/kubernetes-names.ts";
import { publishedImage } from "../../contract/release.ts";
import { serverSettings } from "../../contract/server/server-settings.ts";
import {
  cpuScaling,
  disruptionBudget,
  namespace,
  podResources,
  quantities,
  quotaFields,
} from "./cluster-settings.ts";
import { accelerator, modelConfig, optimumBatchSize, tritonKind } from "./docker-settings.ts";
import { models, type WithSpecs } from "./model-settings.ts";
import { review } from "./review-settings.ts";
import {
  downloadUrl,
  image,
  integer,
  oneOf,
  path,
  sha256,
  text,
  towerDownload,
  towerName,
  url,
} from "./setting-types.ts";
import { state } from "./state-settings.ts";

const labelKey = text("the key of a label, like 'team' or 'nvidia.com/gpu'", labelKeyPattern);
const labelValue = text(
  "the value of a label: letters, digits, '-', '_' and '.', at most 63",
  labelValuePattern,
);
const objectName = text(
  "a Kubernetes name: lower-case letters, digits, '-' and '.', at most 253",
  objectNamePattern,
);
const cluster = z
  .strictObject({
    kubeconfig: path.default("~/.kube/config").describe("Kubeconfig with the context."),
    context: text("a context's name", /^[\w.:@/-]+$/)
      .default("gpu-cluster")
      .describe("Context of the kubeconfig; the current context is never used."),
  })
  .prefault({})
  .describe("Existing cluster.");

const nodePool = z
  .strictObject({
    gpu: gpuModel.prefault("l4").describe(`GPU model of the nodes: ${gpuModelText}.`),
    nodes: integer(1, 1_000).default(4).describe("Number of GPU nodes."),
    gpusPerNode: integer(1, maxGpus).default(1).describe("Number of GPUs per node."),
    resourceName: text(
      "a resource of NVIDIA's device plugin, like 'nvidia.com/gpu' or 'nvidia.com/mig-1g.10gb'",
      /^nvidia\.com\/(gpu|mig-\d+g\.\d+gb(\.[a-z]+)*)(\.shared)?$/,
    )
      .default(gpuResource)
      .describe(
        "Resource that a pod requests: whole GPUs, MIG devices (`nvidia.com/mig-1g.10gb`) or time-sliced GPUs (`nvidia.com/gpu.shared`).",
      ),
    devicesPerGpu: integer(1, 48)
      .default(1)
      .describe(
        "Number of these resources per GPU: its MIG devices or time slices. Each pod then has one of them.",
      ),
    runtimeClass: objectName
      .default("nvidia")
      .describe("RuntimeClass of pods with a GPU; `none` if NVIDIA's is the nodes' default."),
    selector: z
      .record(labelKey, labelValue)
      .default({})
      .describe("Labels of the nodes that pods with a GPU are scheduled on."),
    tolerations: z
      .array(
        z
          .strictObject({
            key: labelKey.describe("Key of the taint."),
            operator: z
              .enum(["Equal", "Exists"])
              .default("Equal")
              .describe("Comparison operator, as in Kubernetes."),
            value: labelValue
              .optional()
              .describe("Value of the taint, with `Equal`. Default: the empty value."),
            effect: z
              .enum(["NoSchedule", "PreferNoSchedule", "NoExecute"])
              .optional()
              .describe("Effect of the taint. Default: every effect."),
          })
          .refine(({ operator, value }) => operator === "Equal" || value === undefined, {
            path: ["value"],
            message: "must be absent with the operator Exists",
          }),
      )
      .default([{ key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule" }])
      .describe("Tolerations of pods with a GPU."),
  })
  .prefault({})
  .describe("GPU nodes of the cluster, used with the accelerator `gpu`.");

const volumeFile = {
  folder: path
    .optional()
    .describe(
      "Folder of `model.onnx` on the volume. Default: `<tower>/1` in `towers`, as in a model repository, otherwise the root.",
    ),
  sha256: sha256.optional(),
};

const model = z
  .discriminatedUnion(
    "weights",
    [
      z.strictObject({
        weights: z.literal("image"),
        sha256: sha256.optional(),
        towers: z.record(towerName, z.strictObject({ sha256 })).optional(),
      }),
      z.strictObject({
        weights: z.literal("pvc"),
        claim: objectName,
        ...volumeFile,
        towers: z.record(towerName, z.strictObject(volumeFile)).optional(),
      }),
      z.strictObject({
        weights: z.literal("init"),
        url: downloadUrl.optional(),
        sha256: sha256.optional(),
        towers: z.record(towerName, z.strictObject(towerDownload)).optional(),
      }),
    ],
    oneOf("weights", ["image", "pvc", "init"]),
  )
  .prefault({ weights: "image" })
  .describe(
    "Source of the weights: `{ weights: image, sha256 }`, the images contain them, and each Triton pod verifies the file that it loads; `{ weights: pvc, claim, folder, sha256 }`, a volume contains them; `{ weights: init, url, sha256 }`, each pod downloads and verifies them when it starts; Triton servers with TensorRT 11 (26.06 and newer) require the URL of `model.trt-fp16.onnx`, and with `pvc` that file beside `model.onnx`. Several towers are in a model repository on the volume (`dinov2_small/1/model.onnx`); `towers` has their files by name: `{ weights: image, towers: { 'dinov2-small:image': { sha256 } } }`, `{ weights: pvc, claim, towers: { 'dinov2-small:image': { folder, sha256 } } }`, `{ weights: init, towers: { 'siglip2-base-224:text': { url, sha256, tokenizer: { url, sha256 } } } }`.",
  );

const embed = z
  .strictObject({
    image: image
      .default(publishedImage("embed-cpu") ?? "registry.example/clipstack/embed:0.1.0")
      .describe(
        "Embed image, in a registry that the cluster pulls from; in a project, the default is the published image of the version, by digest.",
      ),
    server: serverSettings.optional(),
    backend: z
      .enum(["triton", "onnxruntime"])
      .default("triton")
      .describe(
        "`triton`: gateway to the Triton servers. `onnxruntime`: ONNX Runtime in the embed server, with one GPU per pod if the accelerator is `gpu`.",
      ),
    service: z
      .enum(["ClusterIP", "NodePort", "LoadBalancer"])
      .default("ClusterIP")
      .describe("Type of the Service; `ClusterIP` is reachable only inside the cluster."),
    keySecret: objectName
      .optional()
      .describe("Secret of the namespace whose entry `api-key` is required from clients."),
    keysSecret: objectName
      .optional()
      .describe(
        "Secret of the namespace whose entry `keys.json` lists the keys of clients; `keySecret` is then that of Prometheus.",
      ),
    allowAnonymous: z
      .boolean()
      .default(false)
      .describe("Allow `NodePort` and `LoadBalancer` without a key."),
    tls: z
      .strictObject({
        secret: objectName.describe(
          "Secret of the namespace of the type `kubernetes.io/tls`; its certificate names `clipstack-embed.<namespace>.svc`.",
        ),
      })
      .optional()
      .describe("HTTPS at the embed server. Default: plain HTTP."),
    allowPlaintext: z
      .boolean()
      .default(false)
      .describe(
        "Allow `NodePort` and `LoadBalancer` without `tls`: requests are sent in clear text, also inside a private network.",
      ),
    resources: podResources(quantities(500, 768), quantities(2_000, 1_536)),
    autoscaler: z
      .strictObject(cpuScaling(2, 6))
      .prefault({})
      .describe("Autoscaler on CPU; requires metrics-server in the cluster."),
    budget: disruptionBudget,
  })
  .prefault({});

const engineCache = z
  .strictObject({
    enabled: z
      .boolean()
      .default(false)
      .describe("Keep compiled engines on a volume; otherwise each new pod compiles them."),
    accessMode: z
      .enum(["ReadWriteOnce", "ReadWriteMany"])
      .default("ReadWriteMany")
      .describe("`ReadWriteOnce`: all pods run on one node."),
    storageClass: objectName
      .optional()
      .describe("StorageClass of the volume. Default: the cluster's default."),
    sizeGiB: integer(1, 1_000).default(2).describe("Size of the volume."),
  })
  .prefault({})
  .describe("Used with the backend `tensorrt` on a GPU.");

const tritonAutoscaler = z
  .strictObject({
    ...cpuScaling(2, 4),
    metric: z
      .enum(["queue-time", "cpu"])
      .default("queue-time")
      .describe(
        "`queue-time`: time of requests in Triton's queue. `cpu`: for Triton servers on the CPU.",
      ),
    source: z
      .enum(["keda", "prometheus-adapter"])
      .default("keda")
      .describe("Component, already installed in the cluster, that provides the queue time."),
    prometheus: url
      .default("http://prometheus-operated.monitoring.svc:9090")
      .describe("Address of Prometheus in the cluster, which `keda` queries."),
    targetQueueMilliseconds: integer(1, 60_000)
      .default(50)
      .describe("Target for the average queue time per request."),
  })
  .prefault({});

const tritonDeployment = z
  .strictObject({
    enabled: z.boolean().default(true).describe("`false` omits the service."),
    server: tritonKind,
    backend: z
      .enum(["onnxruntime", "tensorrt"])
      .default("onnxruntime")
      .describe("Triton backend that executes the model."),
    image: image
      .default("registry.example/clipstack/triton:26.07-1")
      .describe(
        "Triton's image, in a registry that the cluster pulls from: NVIDIA's, or this project's (`Dockerfile.triton`), which can contain the weights.",
      ),
    gpusPerPod: integer(1, maxGpus)
      .default(1)
      .describe("GPUs of one pod, all on one node; used with the accelerator `gpu`."),
    spareGpu: z
      .boolean()
      .default(false)
      .describe(
        "Whether a rolling update starts a pod before it stops another, which requires the GPUs of one more pod.",
      ),
    ...modelConfig,
    optimumBatchSize: optimumBatchSize.describe(
      "With the backend `tensorrt`: batch size that its kernels are tuned for.",
    ),
    engineCache,
    resources: podResources(quantities(2_000, 4_096), quantities(4_000, 8_192)),
    autoscaler: tritonAutoscaler,
    budget: disruptionBudget,
  })
  .prefault({});

export const kubernetesSettings = z.strictObject({
  accelerator,
  state,
  review,
  cluster,
  namespace,
  createNamespace: z
    .boolean()
    .default(true)
    .describe(
      "Create the namespace, and remove it with the environment; `false`: it exists. Changing it to `false` later removes the deployed namespace and everything in it.",
    ),
  imagePullSecret: objectName
    .optional()
    .describe("Secret of the namespace with which images are pulled."),
  models,
  nodePool,
  model,
  embed,
  triton: tritonDeployment,
  scraping: z
    .enum(["service-monitor", "annotations", "none"])
    .default("service-monitor")
    .describe(
      "How Prometheus finds the metrics: a ServiceMonitor (requires the Prometheus operator) or annotations of the pods.",
    ),
  serviceMonitor: z
    .strictObject({
      labels: z
        .record(labelKey, labelValue)
        .default({})
        .describe(
          "Labels that Prometheus selects ServiceMonitors by; for kube-prometheus-stack `release: <name of its Helm release>`.",
        ),
      intervalSeconds: integer(1, 300)
        .default(15)
        .describe(
          "Scrape interval, also with annotations; the queue time covers four intervals, and at least one minute.",
        ),
    })
    .prefault({})
    .describe("Scraping by Prometheus."),
  quota: z
    .strictObject({
      gpus: integer(1, 10_000)
        .default(4)
        .describe("Number of GPUs; used with the accelerator `gpu`."),
      ...quotaFields(quantities(14_000, 26_624), quantities(35_000, 53_248), 14),
    })
    .prefault({})
    .describe("ResourceQuota: all pods at their maximum, and the pods that rolling updates add."),
  chartValues: z
    .record(z.string(), z.unknown())
    .superRefine((values, context) => {
      for (const issue of chartValues.safeParse(values).error?.issues ?? []) {
        const isUnknown = issue.code === "unrecognized_keys";
        const message = isUnknown
          ? "must be a value of the chart (helm/clipstack/README.md#values)"
          : rule(issue);
        for (const key of isUnknown ? issue.keys.map((name) => [name]) : [[]]) {
          context.addIssue({ code: "custom", path: [...issue.path, ...key], message });
        }
      }
    })
    .default({})
    .describe(
      "Further values of the chart (helm/clipstack/README.md#values), such as `{ triton: { priorityClassName: inference } }`; not those that other settings determine.",
    ),
});
export type KubernetesSettings = WithSpecs<z.infer<typeof kubernetesSettings>>;
