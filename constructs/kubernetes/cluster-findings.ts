import { serverFindings } from "../../contract/server/server-settings.ts";
import { finding, findingIf } from "../checks/findings.ts";
import {
  type GpuPods,
  gpuQuotaFindings,
  gpusPerPodFindings,
  poolFindings,
} from "../checks/gpu-pool.ts";
import { imageFindings, releaseFindings, tritonOptionFindings } from "../checks/images.ts";
import { autoscalerFindings, budgetFindings, resourceFindings } from "../checks/kubernetes.ts";
import { podMemoryFindings } from "../checks/memory.ts";
import { metricSourceFindings, scalingWarnings, sharedQuotaFindings } from "../checks/scaling.ts";
import { vramFindings } from "../checks/vram.ts";
import { precisionFindings, u8FileFindings } from "../checks/weights.ts";
import { towerName } from "../models/downloaded-weights.ts";
import type { ClusterEmbed, ClusterInferenceProps, ClusterPlan } from "./cluster-plan.ts";
import { towerFilesFindings } from "./cluster-weights.ts";
import type { GpuCluster } from "./gpu-cluster.ts";
import { namedObjects } from "./namespace-requirements.ts";
import { plaintextValueFindings } from "./plaintext-values.ts";

/** Findings of the embed server and Triton servers in a cluster that are known during synthesis. */
export function clusterFindings(
  props: ClusterInferenceProps,
  plan: ClusterPlan,
): readonly string[] {
  const { cluster, embed, triton, quota } = props;
  const { gpus } = plan.triton;
  const towers = plan.towers.map(({ tower }) => tower);
  const { gpu } = cluster;
  const pool = { nodes: cluster.pool.nodes, gpusPerNode: cluster.devicesPerNode };
  const gpuWorkloads: readonly GpuPods[] = plan.workloads.filter(
    ({ gpusPerPod }) => gpusPerPod > 0,
  );
  const podFindings = (service: "embed" | "triton") => {
    const { autoscaler, budget, resources } = props[service];
    const prefix = `${service}.`;
    return [
      ...autoscalerFindings(autoscaler, prefix),
      ...budgetFindings(budget, autoscaler, prefix),
      ...resourceFindings(resources, undefined, prefix),
      ...(service === "embed" && embed.backend === "triton"
        ? [] // a gateway has no model
        : podMemoryFindings(resources, plan.models, prefix)),
    ];
  };
  return [
    ...namespaceFindings(props, plan),
    ...towerFilesFindings(props.model, towers),
    ...weightsFindings(props),
    ...u8FileFindings("model.modelKind", props.model.modelKind, [
      ["embed.backend", embed.backend, "triton"],
      ["triton.backend", triton.backend, "onnxruntime"],
    ]),
    ...imageFindings(embed.image, "embed.image"),
    ...serverFindings(embed.server, deviceOf(embed, plan)).map((line) => `embed.${line}`),
    ...(embed.backend === "triton"
      ? []
      : precisionFindings(embed.server, props.model.weights).map((line) => `embed.${line}`)),
    ...podFindings("embed"),
    ...exposureFindings(embed),
    ...findingIf(
      embed.keysSecret !== undefined && embed.keySecret === undefined,
      "embed.keySecret",
      "name a Secret with the key of Prometheus when embed.keysSecret has those of the clients",
      "nothing",
    ),
    ...plaintextValueFindings(props.chartValues ?? {}).map((line) => `chartValues.${line}`),
    ...findingIf(
      embed.backend === "triton" && !triton.enabled,
      "triton.enabled",
      "be true when embed.backend is triton",
      "false",
    ),
    ...(triton.enabled
      ? [
          ...(triton.server === "tritonserver"
            ? [
                ...imageFindings(triton.image, "triton.image"),
                ...tritonOptionFindings(triton.image, "triton.image"),
              ]
            : []),
          ...(gpus > 0 ? releaseFindings(triton.image, gpu, "triton.image") : []),
          ...podFindings("triton"),
          ...configurationProblems(plan).map((problem) => `triton.${problem}`),
          ...metricSourceFindings("triton", triton.autoscaler, props.scraping, triton.autoscaler),
          ...engineCacheFindings(props, plan),
        ]
      : []),
    ...gpuWorkloads.flatMap((pods) => gpusPerPodFindings(pods, pool)),
    ...shareFindings(cluster, gpus),
    ...poolFindings(gpuWorkloads, pool),
    ...gpuQuotaFindings(gpuWorkloads, quota.gpus),
    ...sharedQuotaFindings(plan.workloads, quota),
    ...podVramFindings(props, plan),
  ];
}

function deviceOf({ backend }: ClusterEmbed, plan: ClusterPlan): "cpu" | "cuda" | "triton" {
  if (backend === "triton") return "triton";
  return plan.embed.gpus > 0 ? "cuda" : "cpu";
}

function namespaceFindings(props: ClusterInferenceProps, plan: ClusterPlan): readonly string[] {
  if (!props.createNamespace) return [];
  return namedObjects(props, plan).map(({ setting, name }) =>
    finding(
      "createNamespace",
      `be false when ${setting} names an existing object of the namespace ('${name}')`,
      "true",
    ),
  );
}

/** Errors of the configurations of all towers; the same setting can be wrong for all of them. */
function configurationProblems({ towers }: ClusterPlan): readonly string[] {
  return [...new Set(towers.flatMap(({ config }) => config.problems))];
}

/** Checks the memory of one GPU per service, because pods do not share GPUs and all GPUs of a pod have the same load. */
function podVramFindings(
  { cluster, embed, triton }: ClusterInferenceProps,
  plan: ClusterPlan,
): readonly string[] {
  const { gpus, instancesPerGpu: instances } = plan.triton;
  const { models } = plan;
  const vram = cluster.deviceMiB;
  return [
    ...(triton.enabled && gpus > 0
      ? vramFindings(
          0,
          [{ service: "triton", backend: triton.backend, instances, models }],
          vram,
          "nodePool.gpu",
        )
      : []),
    ...(plan.embed.gpus > 0
      ? vramFindings(
          0,
          [
            {
              service: "embed",
              backend: "onnxruntime",
              instances: embed.server?.modelInstances ?? 1,
              models,
            },
          ],
          vram,
          "nodePool.gpu",
        )
      : []),
  ];
}

/** Rejects a Service that is reachable from outside the cluster without authentication or TLS, unless the settings allow it. */
function exposureFindings({
  service,
  keySecret,
  allowAnonymous,
  tls,
  allowPlaintext = false,
}: ClusterEmbed): readonly string[] {
  const plaintext = findingIf(
    service !== "ClusterIP" && tls === undefined && !allowPlaintext,
    "embed.tls",
    `name a Secret with a certificate when embed.service is ${service}, because requests would be sent in clear text; allowPlaintext: true exposes the port anyway`,
    "nothing",
  );
  if (keySecret !== undefined && allowAnonymous) {
    const must = "be false when embed.keySecret names a Secret";
    return [finding("embed.allowAnonymous", must, "true"), ...plaintext];
  }
  return [
    ...findingIf(
      service !== "ClusterIP" && keySecret === undefined && !allowAnonymous,
      "embed.keySecret",
      `name a Secret with the key when embed.service is ${service}, or embed.allowAnonymous must be true`,
      "nothing",
    ),
    ...plaintext,
  ];
}

function weightsFindings({ model, triton }: ClusterInferenceProps): readonly string[] {
  if (model.weights !== "image") return [];
  return [
    ...findingIf(
      triton.enabled &&
        triton.server === "tritonserver" &&
        triton.image.startsWith("nvcr.io/nvidia/"),
      "model.weights",
      "be pvc or init when triton.image is NVIDIA's own, which has no weights",
      "'image'",
    ),
    ...findingIf(
      !triton.enabled && (model.sha256 !== undefined || model.towers !== undefined),
      model.sha256 === undefined ? "model.towers" : "model.sha256",
      "be omitted when triton.enabled is false: the embed server computes its fingerprint from the file that it serves",
      "a checksum",
    ),
  ];
}

/** Rejects a pod with several MIG devices or time slices: a CUDA process uses one MIG device, and two slices may be of one GPU. */
function shareFindings(
  { sharesGpus, resourceName, pool }: GpuCluster,
  gpus: number,
): readonly string[] {
  return [
    ...findingIf(
      sharesGpus && gpus > 1,
      "triton.gpusPerPod",
      `be 1 if nodePool.resourceName is a part of a GPU (${resourceName}, ${pool.devicesPerGpu ?? 1} per GPU)`,
      gpus,
    ),
    ...findingIf(
      resourceName.endsWith(".shared") && (pool.devicesPerGpu ?? 1) === 1,
      "nodePool.devicesPerGpu",
      `be at least 2 with nodePool.resourceName ${resourceName}`,
      1,
    ),
  ];
}

/** Rejects an engine cache whose volume cannot be mounted on every node, or whose engines cannot be matched to their weights. */
function engineCacheFindings(
  { cluster, triton, model }: ClusterInferenceProps,
  { towers, triton: { compiles, gpus } }: ClusterPlan,
): readonly string[] {
  const { enabled, accessMode } = triton.engineCache;
  if (!compiles || !enabled) return [];
  const podsPerNode = Math.floor(cluster.devicesPerNode / gpus);
  const { maxReplicas } = triton.autoscaler;
  return [
    ...(model.weights === "pvc"
      ? towers.flatMap(({ tower, files }) =>
          findingIf(
            files.sha256 === undefined,
            model.towers === undefined ? "model.sha256" : `model.towers.${towerName(tower)}.sha256`,
            "be set when triton.engineCache.enabled is true: otherwise engines of other weights could be used",
            "nothing",
          ),
        )
      : []),
    ...findingIf(
      model.weights === "image" && !triton.image.includes("@sha256:"),
      "triton.image",
      "be pinned by digest, like 'name@sha256:…', when triton.engineCache.enabled is true and model.weights is image: the weights behind a tag can change, and engines of the old weights would be used",
      `'${triton.image}'`,
    ),
    ...findingIf(
      accessMode === "ReadWriteOnce" && maxReplicas > Math.max(1, podsPerNode),
      "triton.engineCache.accessMode",
      `be ReadWriteMany for triton.autoscaler.maxReplicas ${maxReplicas}: one node has GPUs for ${podsPerNode} of them`,
      "'ReadWriteOnce'",
    ),
  ];
}

/** Warnings about valid but surprising settings. */
export function clusterWarnings(
  { embed, triton, cluster, scraping }: ClusterInferenceProps,
  plan: ClusterPlan,
): readonly string[] {
  return [
    ...scalingWarnings("embed", embed.autoscaler, "cpu", plan.embed.gpus > 0),
    ...(scraping === "annotations" && embed.keySecret !== undefined
      ? [
          "scraping is annotations, and embed.keySecret names a Secret: Prometheus sends no key and receives 401 from /metrics of the embed server; service-monitor provides the key",
        ]
      : []),
    ...(triton.enabled
      ? scalingWarnings("triton", triton.autoscaler, triton.autoscaler.metric, plan.triton.gpus > 0)
      : []),
    ...(triton.enabled && triton.server === "emulator" && cluster.accelerator === "gpu"
      ? ["triton.server is emulator, which runs on the CPU and requests no GPU"]
      : []),
    ...(triton.enabled && plan.triton.compiles && !triton.engineCache.enabled
      ? [
          `triton.engineCache.enabled is false: each new pod builds TensorRT engines for up to ${plan.triton.startSeconds} s before it is ready`,
        ]
      : []),
  ];
}
