import {
  type DeployedModelConfig,
  deployedModelConfig,
  type ModelConfigSettings,
  shippedModels,
  type TunableModel,
} from "../../contract/deployed-model-config.ts";
import { executionInstances, type ModelVariant } from "../../contract/model-config.ts";
import {
  startSeconds as embedStartSeconds,
  imagePullSeconds,
  type PodComponent,
  surge as rolloutSurge,
  terminationSeconds,
} from "../../contract/pods.ts";
import { variantFor } from "../checks/gpus.ts";
import type { Budget, CpuScaling, Quota, Resources } from "../checks/kubernetes.ts";
import type { Pods, ScalingMetric, Scraping } from "../checks/scaling.ts";
import { tritonStartSeconds } from "../triton-times.ts";
import { chartImage } from "./chart-values-for.ts";
import type { GpuCluster } from "./gpu-cluster.ts";

/** Props of the embed server and Tritons in a cluster, and the plan derived from them. */

/** Model of the embed server and the Tritons. */
export type ClusterModel = ClusterWeights & {
  /**
   * Folder of the model in the repository, and its name in requests.
   *
   * @default - openclip_vit_b32; for Tritons with the backend `tensorrt`, openclip_vit_b32_trt
   */
  readonly name?: TunableModel;
};

/** Source of the weights. */
export type ClusterWeights =
  /** Included in the images. */
  | { readonly weights: "image" }
  /** Stored on a volume. */
  | {
      readonly weights: "pvc";
      /** Existing PersistentVolumeClaim with `model.onnx`. */
      readonly claim: string;
      /**
       * Folder of `model.onnx` on the volume.
       *
       * @default - the root of the volume
       */
      readonly folder?: string;
      /**
       * SHA-256 of `model.onnx`.
       *
       * @default - not verified
       */
      readonly sha256?: string;
    }
  /** Downloaded by each pod when it starts. */
  | { readonly weights: "init"; readonly url: string; readonly sha256: string };

export interface ClusterEmbed {
  /** Image with a tag or digest, which the cluster can pull. */
  readonly image: string;
  /** `onnxruntime`: ONNX Runtime in the embed server, on the cluster's accelerator. `triton`: gateway to the Tritons. */
  readonly backend: "onnxruntime" | "triton";
  readonly service: "ClusterIP" | "NodePort" | "LoadBalancer";
  /**
   * Secret of the namespace with the bearer token required from clients, under the key `api-key`.
   *
   * @default - no authentication
   */
  readonly keySecret?: string;
  /** Whether a Service reachable from outside the cluster may have no authentication. */
  readonly allowAnonymous: boolean;
  readonly resources: Resources;
  /** Autoscaling; off if the minimum equals the maximum. */
  readonly autoscaler: CpuScaling;
  readonly budget: Budget;
}

export interface ClusterTriton extends Required<Omit<ModelConfigSettings, "engineCachePrefix">> {
  readonly enabled: boolean;
  /** `tritonserver`: NVIDIA's server. `emulator`: Triton emulator in the embed image, on the CPU. */
  readonly server: "tritonserver" | "emulator";
  readonly backend: "onnxruntime" | "tensorrt";
  /** Image with a tag or digest, which the cluster can pull. Ignored with the server `emulator`. */
  readonly image: string;
  readonly gpusPerPod: number;
  /** Whether the cluster has the GPUs of one additional pod. A rolling update then starts a pod before it stops another. */
  readonly spareGpu: boolean;
  /** TensorRT engine cache on a volume. */
  readonly engineCache: {
    readonly enabled: boolean;
    readonly accessMode: "ReadWriteOnce" | "ReadWriteMany";
    /**
     * StorageClass of the claim.
     *
     * @default - the default StorageClass of the cluster
     */
    readonly storageClass?: string;
    readonly sizeGiB: number;
  };
  readonly resources: Resources;
  /** Autoscaling; off if the minimum equals the maximum. */
  readonly autoscaler: CpuScaling &
    ScalingMetric & {
      /** Target average queue time of a request. */
      readonly targetQueueMilliseconds: number;
    };
  readonly budget: Budget;
}

export interface ClusterInferenceProps {
  readonly cluster: GpuCluster;
  /** Folder of the chart `clipstack`, relative to the project. */
  readonly chart: string;
  readonly namespace: string;
  /** Whether the deployment creates the namespace and destroys it with the environment. */
  readonly createNamespace: boolean;
  /**
   * Image pull secret of the namespace.
   *
   * @default - none
   */
  readonly imagePullSecret?: string;
  readonly model: ClusterModel;
  readonly embed: ClusterEmbed;
  readonly triton: ClusterTriton;
  /** Mechanism by which Prometheus discovers the pods. */
  readonly scraping: Scraping;
  readonly serviceMonitor: {
    /** Labels by which Prometheus selects the ServiceMonitors. */
    readonly labels: Readonly<Record<string, string>>;
    /** Scrape interval, also with `annotations`. */
    readonly intervalSeconds: number;
  };
  readonly quota: Quota & { readonly gpus: number };
}

/** Values derived from the props. */
export interface ClusterPlan {
  readonly triton: {
    /** GPUs per pod; 0 on the CPU. */
    readonly gpus: number;
    readonly model: TunableModel;
    readonly variant: ModelVariant;
    readonly config: DeployedModelConfig;
    /** Whether pods build TensorRT engines. */
    readonly compiles: boolean;
    /** Execution instances per pod. */
    readonly executionInstances: number;
    /** Maximum time until a pod is ready. */
    readonly startSeconds: number;
  };
  readonly embed: {
    /** GPUs per pod; 0 on the CPU. */
    readonly gpus: number;
    readonly model: TunableModel;
  };
  /** Deployments, Triton first. */
  readonly workloads: readonly (Pods & {
    readonly service: PodComponent;
    readonly gpusPerPod: number;
    /** Maximum time of a rollout that replaces all pods, each on a new node that pulls its image. */
    readonly rolloutSeconds: number;
  })[];
}

/** Derives the GPUs, model configuration and time limits of the Deployments from the props. */
export function clusterPlan(props: ClusterInferenceProps): ClusterPlan {
  const { cluster, embed, model } = props;
  const triton = tritonPlan(props);
  const embedGpus = cluster.accelerator === "gpu" && embed.backend === "onnxruntime" ? 1 : 0;
  return {
    triton,
    embed: {
      gpus: embedGpus,
      model: embed.backend === "triton" ? triton.model : (model.name ?? shippedModels.onnxruntime),
    },
    workloads: [
      ...(props.triton.enabled ? [tritonWorkload(props.triton, triton)] : []),
      embedWorkload(embed, embedGpus, triton),
    ],
  };
}

function tritonPlan({ cluster, triton, model }: ClusterInferenceProps): ClusterPlan["triton"] {
  const gpus =
    cluster.accelerator === "gpu" && triton.server === "tritonserver" ? triton.gpusPerPod : 0;
  const name = model.name ?? shippedModels[triton.backend];
  const variant = variantFor(
    name,
    Array.from({ length: gpus }, (_, index) => index),
  );
  const compiles = triton.backend === "tensorrt" && gpus > 0;
  const config = deployedModelConfig(name, variant, {
    maxQueueDelayMicroseconds: triton.maxQueueDelayMicroseconds,
    instancesPerGpu: triton.instancesPerGpu,
    cudaGraphs: triton.cudaGraphs,
    ...(triton.backend === "tensorrt" && { optimumBatchSize: triton.optimumBatchSize }),
    ...(compiles && { engineCachePrefix: enginePrefix(model, triton.image) }),
  });
  const instances = executionInstances(config.config, gpus);
  return {
    gpus,
    model: name,
    variant,
    config,
    compiles,
    executionInstances: instances,
    startSeconds: tritonStartSeconds(compiles, instances),
  };
}

type Workload = ClusterPlan["workloads"][number];

function tritonWorkload(triton: ClusterTriton, plan: ClusterPlan["triton"]): Workload {
  const pods = podCounts(triton);
  return {
    ...pods,
    service: "triton",
    gpusPerPod: plan.gpus,
    surge: plan.gpus > 0 && !triton.spareGpu ? 0 : rolloutSurge,
    rolloutSeconds: rolloutSeconds(pods.maxReplicas, imagePullSeconds.triton + plan.startSeconds),
  };
}

function embedWorkload(
  embed: ClusterEmbed,
  gpus: number,
  { startSeconds }: ClusterPlan["triton"],
): Workload {
  const pods = podCounts(embed);
  const isGateway = embed.backend === "triton";
  // a gateway becomes ready after its first Triton, whose image the first gateway also waits for
  const readySeconds = embedStartSeconds + (isGateway ? startSeconds : 0);
  const firstSeconds = isGateway ? imagePullSeconds.triton : 0;
  return {
    ...pods,
    service: "embed",
    gpusPerPod: gpus,
    surge: gpus > 0 ? 0 : rolloutSurge,
    rolloutSeconds: rolloutSeconds(
      pods.maxReplicas,
      imagePullSeconds.embed + readySeconds,
      firstSeconds,
    ),
  };
}

function podCounts({ autoscaler, resources }: ClusterEmbed | ClusterTriton) {
  const { minReplicas, maxReplicas } = autoscaler;
  return { resources, minReplicas, maxReplicas };
}

/** Maximum time of a rollout of pods one after another, at most one day. */
function rolloutSeconds(pods: number, startSeconds: number, firstSeconds = 0): number {
  return Math.min(86_400, firstSeconds + pods * (startSeconds + terminationSeconds()));
}

/** Prefix of cached engines, which depend on the weights and the image besides their shapes. */
function enginePrefix(model: ClusterModel, image: string): string {
  const weights = model.weights === "image" ? undefined : model.sha256?.slice(0, 12);
  const { tag, digest } = chartImage(image);
  const version = digest?.slice("sha256:".length, "sha256:".length + 12) ?? tag ?? "";
  return [weights, version].filter((part) => part !== undefined && part !== "").join("_");
}
