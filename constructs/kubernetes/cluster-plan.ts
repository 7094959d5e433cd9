import {
  type DeployedModelConfig,
  deployedModelConfig,
} from "../../contract/deployed-model-config.ts";
import { executionInstances } from "../../contract/model-config.ts";
import type { ModelConfigSettings } from "../../contract/model-config-settings.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import {
  startSeconds as embedStartSeconds,
  imagePullSeconds,
  type PodComponent,
  surge as rolloutSurge,
  terminationSeconds,
} from "../../contract/pods.ts";
import type { ServerSettings } from "../../contract/server/server-settings.ts";
import { precisionSourceOf } from "../../contract/triton-releases.ts";
import type { Budget, CpuScaling, Quota, Resources } from "../checks/kubernetes.ts";
import type { Pods, ScalingMetric, Scraping } from "../checks/scaling.ts";
import {
  type FileKind,
  type ServedTower,
  servedTowers,
  towerFolder,
  towerKind,
} from "../models/served-towers.ts";
import { tritonStartSeconds } from "../models/triton-times.ts";
import type { ChartValues } from "./chart-values.ts";
import { chartImage } from "./chart-values-for.ts";
import { type ClusterWeights, type TowerFiles, towerFiles } from "./cluster-weights.ts";
import type { GpuCluster } from "./gpu-cluster.ts";

/** Props of the embed server and Triton servers in a cluster, and the plan derived from them. */

/** Model kind and weights of the models of the embed server and the Triton servers. */
export type ClusterModel = ClusterWeights & {
  /**
   * Model kind of the image towers in Triton servers with the backend `onnxruntime`. `u8` files contain the normalisation; ONNX Runtime in the
   * embed server and TensorRT do not read them.
   *
   * @default "fp32"
   */
  readonly modelKind?: Exclude<FileKind, "trt">;
};

export interface ClusterEmbed {
  /** Image with a tag or digest, which the cluster can pull. */
  readonly image: string;
  /** `onnxruntime`: ONNX Runtime in the embed server, on the cluster's accelerator. `triton`: gateway to the Triton servers. */
  readonly backend: "onnxruntime" | "triton";
  readonly service: "ClusterIP" | "NodePort" | "LoadBalancer";
  /**
   * Secret of the namespace with the bearer token required from clients, under the key `api-key`.
   *
   * @default - no authentication
   */
  readonly keySecret?: string;
  /**
   * Secret of the namespace whose key `keys.json` lists the keys of clients. Requires `keySecret`.
   *
   * @default - only the key of `keySecret`
   */
  readonly keysSecret?: string;
  /** Whether a Service reachable from outside the cluster may have no authentication. */
  readonly allowAnonymous: boolean;
  /**
   * Secret of the namespace with the certificate of the embed server, which names the Service.
   *
   * @default - plain HTTP
   */
  readonly tls?: { readonly secret: string };
  /**
   * Whether a Service reachable from outside the cluster may have no TLS.
   *
   * @default false
   */
  readonly allowPlaintext?: boolean;
  readonly resources: Resources;
  /** Autoscaling; off if the minimum equals the maximum. */
  readonly autoscaler: CpuScaling;
  readonly budget: Budget;
  /**
   * Variables of the server that the chart does not set itself.
   *
   * @default - the defaults of the server
   */
  readonly server?: ServerSettings;
}

/** The settings of the model configurations apply to all models; `optimumBatchSize` is ignored with the backend `onnxruntime`. */
export interface ClusterTriton extends Omit<ModelConfigSettings, "modelVersions"> {
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
  /**
   * Models that every service serves; the first is the default of requests.
   *
   * @default - images with OpenCLIP ViT-B/32
   */
  readonly models?: readonly ModelSpec[];
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
  /**
   * Values of the chart that the other props do not determine.
   *
   * @default - the defaults of the chart
   */
  readonly chartValues?: ChartValues;
}

/** Tower with its file and its configuration in Triton. */
export interface PlannedTower {
  readonly tower: ServedTower;
  /** Folder of its file in the model repository. */
  readonly folder: string;
  /** Folder in Triton's model repository, and name in requests. */
  readonly tritonModel: string;
  readonly config: DeployedModelConfig;
  /** Source of the files; at most a checksum if the images contain them. */
  readonly files: TowerFiles;
}

/** Values derived from the props. */
export interface ClusterPlan {
  /** Specs of the served models; the first is the default. */
  readonly models: readonly ModelSpec[];
  /** Towers of the models, in their order. */
  readonly towers: readonly PlannedTower[];
  readonly triton: {
    /** GPUs per pod; 0 on the CPU. */
    readonly gpus: number;
    /** Model kind of the image towers. */
    readonly served: FileKind;
    /** Whether pods build TensorRT engines. */
    readonly compiles: boolean;
    /** Maximum number of execution instances of a tower per GPU, or per pod on the CPU. */
    readonly instancesPerGpu: number;
    /** Maximum time until a pod is ready. */
    readonly startSeconds: number;
  };
  readonly embed: {
    /** GPUs per pod; 0 on the CPU. */
    readonly gpus: number;
    /** Model kind of the image towers. */
    readonly served: FileKind;
  };
  /** Deployments, Triton first. */
  readonly workloads: readonly (Pods & {
    readonly service: PodComponent;
    readonly gpusPerPod: number;
    /** Maximum time of a rollout that replaces all pods, each on a new node that pulls its image. */
    readonly rolloutSeconds: number;
  })[];
}

/** Derives the towers, GPUs, model configurations and time limits of the Deployments from the props. */
export function clusterPlan(props: ClusterInferenceProps): ClusterPlan {
  const { cluster, embed, models = defaultModels } = props;
  const gpus = tritonGpus(props);
  const towers = servedTowers(models).map((tower) => plannedTower(tower, props, gpus));
  const triton = tritonPlan(props, gpus, towers);
  const embedGpus = cluster.accelerator === "gpu" && embed.backend === "onnxruntime" ? 1 : 0;
  return {
    models,
    towers,
    triton,
    embed: {
      gpus: embedGpus,
      served: embed.backend === "triton" ? triton.served : "fp32",
    },
    workloads: [
      ...(props.triton.enabled ? [tritonWorkload(props.triton, triton)] : []),
      embedWorkload(embed, embedGpus, triton),
    ],
  };
}

function tritonGpus({ cluster, triton }: ClusterInferenceProps): number {
  const onGpu = cluster.accelerator === "gpu" && triton.server === "tritonserver";
  return onGpu ? triton.gpusPerPod : 0;
}

function tritonKind({ triton, model }: ClusterInferenceProps): FileKind {
  return triton.backend === "tensorrt" ? "trt" : (model.modelKind ?? "fp32");
}

function plannedTower(
  tower: ServedTower,
  props: ClusterInferenceProps,
  gpus: number,
): PlannedTower {
  const { triton, model, models = defaultModels } = props;
  const served = tritonKind(props);
  const folder = towerFolder(tower, model.modelKind ?? "fp32");
  const files = towerFiles(model, tower, folder, servedTowers(models).length === 1);
  const tensorrt = triton.backend === "tensorrt";
  const modelKind = towerKind(tower, served);
  const config = deployedModelConfig({ spec: tower.spec, modelKind }, gpus, triton, {
    precision: precisionSourceOf(triton.image),
    weightsSha256: files.sha256,
    ...(tensorrt && gpus > 0 && { engineCachePrefix: enginePrefix(files.sha256, triton.image) }),
  });
  return {
    tower,
    folder,
    tritonModel: towerFolder(tower, served),
    config,
    files,
  };
}

function tritonPlan(
  props: ClusterInferenceProps,
  gpus: number,
  towers: readonly PlannedTower[],
): ClusterPlan["triton"] {
  const compiles = props.triton.backend === "tensorrt" && gpus > 0;
  const instances = towers.map(({ config }) => executionInstances(config.config, gpus));
  const total = instances.reduce((sum, count) => sum + count, 0);
  return {
    gpus,
    served: tritonKind(props),
    compiles,
    instancesPerGpu: Math.ceil(Math.max(...instances) / Math.max(1, gpus)),
    startSeconds: tritonStartSeconds(compiles, total),
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
  // a gateway becomes ready after its first Triton server, whose image the first gateway also waits for
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
function enginePrefix(sha256: string | undefined, image: string): string {
  const { tag, digest } = chartImage(image);
  const version = digest?.slice("sha256:".length, "sha256:".length + 12) ?? tag ?? "";
  return [sha256?.slice(0, 12), version]
    .filter((part) => part !== undefined && part !== "")
    .join("_");
}
