import type { ModelName } from "../../contract/model-signature.ts";
import { namedObjects } from "../kubernetes/cluster-needs.ts";
import type {
  ClusterEmbed,
  ClusterInferenceProps,
  ClusterPlan,
} from "../kubernetes/cluster-plan.ts";
import type { Finding } from "./findings.ts";
import { type GpuPods, gpuQuotaFindings, gpusPerPodFindings, poolFindings } from "./gpu-pool.ts";
import { variantGpuCounts } from "./gpus.ts";
import { imageFindings, releaseFindings, tritonOptionFindings } from "./images.ts";
import { autoscalerFindings, budgetFindings, resourceFindings } from "./kubernetes.ts";
import { metricSourceFindings, scalingWarnings, sharedQuotaFindings } from "./scaling.ts";
import { vramFindings } from "./vram.ts";

/** Everything that is known to be wrong with embed server and Tritons of a cluster before anything is made. */
export function clusterFindings(
  props: ClusterInferenceProps,
  plan: ClusterPlan,
): readonly (Finding | string)[] {
  const { cluster, embed, triton, quota } = props;
  const { gpus, model } = plan.triton;
  const { gpu, pool } = cluster;
  const onGpus: readonly GpuPods[] = plan.workloads.filter(({ gpusPerPod }) => gpusPerPod > 0);
  const podFindings = (service: "embed" | "triton") => {
    const { autoscaler, budget, resources } = props[service];
    const prefix = `${service}.`;
    return [
      ...autoscalerFindings(autoscaler, prefix),
      ...budgetFindings(budget, autoscaler, prefix),
      ...resourceFindings(resources, undefined, prefix),
    ];
  };
  return [
    ...namespaceFindings(props, plan),
    ...imageFindings(embed.image, "embed.image"),
    ...podFindings("embed"),
    ...exposureFindings(embed),
    ...(embed.backend === "triton" && !triton.enabled
      ? [{ path: "triton.enabled", must: "be true when embed.backend is triton", got: "false" }]
      : []),
    ...(triton.enabled
      ? [
          ...(triton.server === "tritonserver"
            ? [
                ...imageFindings(triton.image, "triton.image"),
                ...tritonOptionFindings(triton.image, "triton.image"),
              ]
            : []),
          ...(gpus > 0 ? releaseFindings(triton.image, gpu, "triton.image") : []),
          ...weightsFindings(props),
          ...variantFindings(gpus, model),
          ...podFindings("triton"),
          ...plan.triton.config.problems.map((problem) => `triton.${problem}`),
          ...metricSourceFindings("triton", triton.autoscaler, props.scraping, triton.autoscaler),
          ...engineCacheFindings(props, plan),
        ]
      : []),
    ...onGpus.flatMap((pods) => gpusPerPodFindings(pods, pool)),
    ...poolFindings(onGpus, pool),
    ...gpuQuotaFindings(onGpus, quota.gpus),
    ...sharedQuotaFindings(plan.workloads, quota),
    ...vramOf(props, plan),
  ];
}

/** A namespace that the deployment makes has nothing in it before. */
function namespaceFindings(props: ClusterInferenceProps, plan: ClusterPlan): readonly Finding[] {
  if (!props.createNamespace) return [];
  return namedObjects(props, plan).map(({ setting, name }) => ({
    path: "createNamespace",
    must: `be false when ${setting} names an existing object of the namespace ('${name}')`,
    got: "true",
  }));
}

/** Each pod has its GPUs alone: what is on the first is on all of them. */
function vramOf({ cluster, triton }: ClusterInferenceProps, plan: ClusterPlan): readonly Finding[] {
  const { gpus, executionInstances: instances } = plan.triton;
  const vram = cluster.gpu.vramMiB;
  return [
    ...(triton.enabled && gpus > 0
      ? vramFindings(
          0,
          [{ service: "triton", backend: triton.backend, instances: Math.ceil(instances / gpus) }],
          vram,
          "nodePool.gpu",
        )
      : []),
    ...(plan.embed.gpus > 0
      ? vramFindings(
          0,
          [{ service: "embed", backend: "onnxruntime", instances: 1 }],
          vram,
          "nodePool.gpu",
        )
      : []),
  ];
}

/** Who comes from outside the cluster must have a key, unless settings say that something else keeps strangers out. */
function exposureFindings({
  service,
  keySecret,
  allowAnonymous,
}: ClusterEmbed): readonly Finding[] {
  if (keySecret !== undefined && allowAnonymous) {
    return [
      {
        path: "embed.allowAnonymous",
        must: "be false when embed.keySecret names a Secret",
        got: "true",
      },
    ];
  }
  return service === "ClusterIP" || keySecret !== undefined || allowAnonymous
    ? []
    : [
        {
          path: "embed.keySecret",
          must: `name a Secret with the key when embed.service is ${service}, or embed.allowAnonymous must be true`,
          got: "nothing",
        },
      ];
}

/** NVIDIA's own image has no weights. */
function weightsFindings({ model, triton }: ClusterInferenceProps): readonly Finding[] {
  return model.weights === "image" &&
    triton.server === "tritonserver" &&
    triton.image.startsWith("nvcr.io/nvidia/")
    ? [
        {
          path: "model.weights",
          must: "be pvc or init when triton.image is NVIDIA's own, which has no weights",
          got: "'image'",
        },
      ]
    : [];
}

function variantFindings(gpus: number, model: ModelName): readonly Finding[] {
  const counts = variantGpuCounts(model);
  return gpus === 0 || counts.includes(gpus)
    ? []
    : [
        {
          path: "triton.gpusPerPod",
          must: `be ${counts.join(" or ")}, as the configurations of ${model} are`,
          got: String(gpus),
        },
      ];
}

/** A volume that one node holds, and pods that need not all be there; or engines that nobody knows the weights of. */
function engineCacheFindings(
  { cluster, triton, model }: ClusterInferenceProps,
  { triton: { compiles, gpus } }: ClusterPlan,
): readonly Finding[] {
  const { enabled, accessMode } = triton.engineCache;
  if (!compiles || !enabled) return [];
  const unknown =
    model.weights === "pvc" && model.sha256 === undefined
      ? [
          {
            path: "model.sha256",
            must: "be given when triton.engineCache.enabled is true: engines of other weights would be used",
            got: "nothing",
          },
        ]
      : [];
  const movable =
    model.weights === "image" && !triton.image.includes("@sha256:")
      ? [
          {
            path: "triton.image",
            must: "be pinned by digest, like 'name@sha256:…', when triton.engineCache.enabled is true and model.weights is image: a tag may get other weights, and engines of the old ones would be used",
            got: `'${triton.image}'`,
          },
        ]
      : [];
  const onOneNode = Math.floor(cluster.pool.gpusPerNode / gpus);
  const { maxReplicas } = triton.autoscaler;
  const apart =
    accessMode === "ReadWriteOnce" && maxReplicas > Math.max(1, onOneNode)
      ? [
          {
            path: "triton.engineCache.accessMode",
            must: `be ReadWriteMany for triton.autoscaler.maxReplicas ${maxReplicas}: one node has GPUs for ${onOneNode} of them`,
            got: "'ReadWriteOnce'",
          },
        ]
      : [];
  return [...unknown, ...movable, ...apart];
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
          "scraping is annotations, and embed.keySecret names a Secret: Prometheus sends no key and gets 401 at /metrics of the embed server; service-monitor gives it the key",
        ]
      : []),
    ...(triton.enabled
      ? scalingWarnings("triton", triton.autoscaler, triton.autoscaler.metric, plan.triton.gpus > 0)
      : []),
    ...(triton.enabled && triton.server === "emulator" && cluster.accelerator === "gpu"
      ? ["triton.server is emulator: it computes on the CPU, and asks for no GPU"]
      : []),
    ...(triton.enabled && plan.triton.compiles && !triton.engineCache.enabled
      ? [
          `triton.engineCache.enabled is false: each new pod compiles the model for up to ${plan.triton.startSeconds} s before it answers`,
        ]
      : []),
  ];
}
