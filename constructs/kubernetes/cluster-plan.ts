import {
  type DeployedModelConfig,
  deployedModelConfig,
} from "../../contract/deployed-model-config.ts";
import { executionInstances, type ModelVariant } from "../../contract/model-config.ts";
import {
  type ModelName,
  openclipVitB32,
  openclipVitB32Trt,
} from "../../contract/model-signature.ts";
import {
  startSeconds as embedStartSeconds,
  imagePullSeconds,
  type PodComponent,
  surge,
  terminationSeconds,
} from "../../contract/pods.ts";
import { variantFor } from "../checks/gpus.ts";
import type { Budget, CpuScaling, Quota, Resources } from "../checks/kubernetes.ts";
import type { Pods, ScalingMetric, Scraping } from "../checks/scaling.ts";
import { tritonStartSeconds } from "../triton-times.ts";
import { chartImage } from "./chart-values-for.ts";
import type { GpuCluster } from "./gpu-cluster.ts";

/** What embed server and Tritons are in a cluster, and what follows from that. */

/** How the weights come to the pods. */
export type ClusterModel =
  /** The images have them. */
  | { readonly weights: "image" }
  /** A volume has them. */
  | {
      readonly weights: "pvc";
      readonly claim: string;
      /** @default - the root of the volume */
      readonly folder?: string;
      /** @default - not checked */
      readonly sha256?: string;
    }
  /** Each pod fetches them when it starts. */
  | { readonly weights: "init"; readonly url: string; readonly sha256: string };

export interface ClusterEmbed {
  /** Image with a version, that the cluster can pull. */
  readonly image: string;
  /** `onnxruntime`: ONNX Runtime in the embed server, on a GPU where there are GPUs. `triton`: gateway to the Tritons. */
  readonly backend: "onnxruntime" | "triton";
  readonly service: "ClusterIP" | "NodePort" | "LoadBalancer";
  /**
   * Secret of the namespace whose entry `api-key` clients must send.
   *
   * @default - nobody is asked for a key
   */
  readonly keySecret?: string;
  /** Whether everybody may ask who reaches the Service from outside the cluster. */
  readonly allowAnonymous: boolean;
  readonly resources: Resources;
  /** As many at the least as at the most: no autoscaler. */
  readonly autoscaler: CpuScaling;
  readonly budget: Budget;
}

export interface ClusterTriton {
  readonly enabled: boolean;
  /** `emulator`: the embed image in the place of NVIDIA's server, on the CPU. */
  readonly server: "tritonserver" | "emulator";
  readonly backend: "onnxruntime" | "tensorrt";
  /** Image with a version, that the cluster can pull. Not read with the server `emulator`. */
  readonly image: string;
  readonly gpusPerPod: number;
  /** Whether a GPU is free for one pod more than the most: a rolling update then starts it before it stops another. */
  readonly spareGpu: boolean;
  readonly maxQueueDelayMicroseconds: number;
  readonly instancesPerGpu: number;
  readonly optimumBatchSize: 8 | 16;
  readonly cudaGraphs: boolean;
  /** The volume that TensorRT keeps its engines on. */
  readonly engineCache: {
    readonly enabled: boolean;
    readonly accessMode: "ReadWriteOnce" | "ReadWriteMany";
    readonly storageClass?: string;
    readonly sizeGiB: number;
  };
  readonly resources: Resources;
  /** As many at the least as at the most: no autoscaler. */
  readonly autoscaler: CpuScaling &
    ScalingMetric & {
      /** Average queue time of a request that is aimed at. */
      readonly targetQueueMilliseconds: number;
    };
  readonly budget: Budget;
}

export interface ClusterInferenceProps {
  readonly cluster: GpuCluster;
  /** Folder of the chart `clipstack`, relative to the project. */
  readonly chart: string;
  readonly namespace: string;
  /** Whether the namespace is made, and goes with the environment. */
  readonly createNamespace: boolean;
  /**
   * Secret of the namespace with which images are pulled.
   *
   * @default - none
   */
  readonly imagePullSecret?: string;
  readonly model: ClusterModel;
  readonly embed: ClusterEmbed;
  readonly triton: ClusterTriton;
  /** How Prometheus comes to the metrics. */
  readonly scraping: Scraping;
  readonly serviceMonitor: {
    /** By which a Prometheus finds it. */
    readonly labels: Readonly<Record<string, string>>;
    /** How often the metrics are read, also where annotations say where they are. */
    readonly intervalSeconds: number;
  };
  readonly quota: Quota & { readonly gpus: number };
}

/** What follows from the props. */
export interface ClusterPlan {
  readonly triton: {
    readonly gpus: number;
    readonly model: ModelName;
    readonly variant: ModelVariant;
    readonly config: DeployedModelConfig;
    readonly compiles: boolean;
    readonly executionInstances: number;
    readonly startSeconds: number;
  };
  readonly embed: { readonly gpus: number };
  readonly workloads: readonly (Pods & {
    readonly service: PodComponent;
    readonly gpusPerPod: number;
    /** Longest time that all pods take to be replaced, each on a node that is new and pulls its image. */
    readonly rolloutSeconds: number;
  })[];
}

export function clusterPlan(props: ClusterInferenceProps): ClusterPlan {
  const { cluster, embed, triton, model } = props;
  const hasGpus = cluster.accelerator === "gpu";
  const gpus = hasGpus && triton.server === "tritonserver" ? triton.gpusPerPod : 0;
  const name = triton.backend === "tensorrt" ? openclipVitB32Trt.name : openclipVitB32.name;
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
  const startSeconds = tritonStartSeconds(compiles, instances);
  const embedGpus = hasGpus && embed.backend === "onnxruntime" ? 1 : 0;
  // a gateway is ready when its first Triton is
  const embedReady =
    embed.backend === "triton" ? startSeconds + embedStartSeconds : embedStartSeconds;
  // the first gateway also waits for a Triton's image
  const tritonPull = embed.backend === "triton" ? imagePullSeconds.triton : 0;
  const workload = (
    service: PodComponent,
    { autoscaler, resources }: ClusterEmbed | ClusterTriton,
    gpusPerPod: number,
    extra: number,
    readySeconds: number,
  ) => ({
    service,
    resources,
    minReplicas: autoscaler.minReplicas,
    maxReplicas: autoscaler.maxReplicas,
    gpusPerPod,
    surge: extra,
    rolloutSeconds: Math.min(
      longestRolloutSeconds,
      (service === "embed" ? tritonPull : 0) +
        autoscaler.maxReplicas * (imagePullSeconds[service] + readySeconds + terminationSeconds()),
    ),
  });
  return {
    triton: {
      gpus,
      model: name,
      variant,
      config,
      compiles,
      executionInstances: instances,
      startSeconds,
    },
    embed: { gpus: embedGpus },
    workloads: [
      ...(triton.enabled
        ? [workload("triton", triton, gpus, gpus > 0 && !triton.spareGpu ? 0 : surge, startSeconds)]
        : []),
      workload("embed", embed, embedGpus, embedGpus > 0 ? 0 : surge, embedReady),
    ],
  };
}

/** A day: longer nobody waits, however many pods there are. */
const longestRolloutSeconds = 86_400;

/** What a compiled engine depends on, besides its shapes: the weights, and the image. */
function enginePrefix(model: ClusterModel, image: string): string {
  const weights = model.weights === "image" ? undefined : model.sha256?.slice(0, 12);
  const { tag, digest } = chartImage(image);
  const version = digest?.slice("sha256:".length, "sha256:".length + 12) ?? tag ?? "";
  return [weights, version].filter((part) => part !== undefined && part !== "").join("_");
}
