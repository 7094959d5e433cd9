/** CDK for Terraform constructs for GPU inference on Docker hosts and Kubernetes clusters: the public API. */

export {
  type GpuModel,
  type GpuName,
  type GpuSpec,
  gpuCatalogue,
  gpuNames,
} from "../contract/gpus.ts";
export { findingsOf, warningsOf } from "./checks/findings.ts";
export type { GpuId } from "./checks/gpus.ts";
export type {
  Budget,
  ContainerRange,
  CpuScaling,
  Quantities,
  Quota,
  Resources,
} from "./checks/kubernetes.ts";
export type { ScalingMetric, Scraping } from "./checks/scaling.ts";
export type { EmbedBackend, EmbedServerProps, RemoteModels } from "./docker/embed-plan.ts";
export { EmbedServer } from "./docker/embed-server.ts";
export { GpuHost, type ImageKind } from "./docker/gpu-host.ts";
export type { Accelerator, Exposure, GpuHostProps, HostUse } from "./docker/host-plan.ts";
export {
  ModelWeights,
  type ModelWeightsProps,
  type WeightsSource,
} from "./docker/model-weights.ts";
export { Monitoring } from "./docker/monitoring.ts";
export type { MonitoringProps } from "./docker/monitoring-plan.ts";
export { PytorchBaseline, type PytorchBaselineProps } from "./docker/pytorch-baseline.ts";
export type { RemoteUpstream, UpstreamTls } from "./docker/remote-upstreams.ts";
export {
  type BuildArgs,
  type BuiltImageSource,
  type ImageBuild,
  type ImageSource,
  ServerImage,
  type ServerImageProps,
} from "./docker/server-image.ts";
export { TlsProxy, type TlsProxyProps } from "./docker/tls-proxy.ts";
export type {
  ModelControl,
  TritonBackend,
  TritonServerKind,
  TritonServerProps,
} from "./docker/triton-plan.ts";
export { TritonServer } from "./docker/triton-server.ts";
export { KindCluster, type KindClusterProps } from "./kind/kind-cluster.ts";
export { KindImage, type KindImageProps, type KindImageSource } from "./kind/kind-image.ts";
export { MetricsServer, type MetricsServerProps } from "./kind/metrics-server.ts";
export { BulkEmbeddingJob, type BulkEmbeddingJobProps } from "./kubernetes/bulk-embedding-job.ts";
export type { ClusterAccess, ImageReference, PortMapping } from "./kubernetes/cluster-access.ts";
export { ClusterInference } from "./kubernetes/cluster-inference.ts";
export type {
  ClusterEmbed,
  ClusterInferenceProps,
  ClusterModel,
  ClusterTriton,
} from "./kubernetes/cluster-plan.ts";
export type { ClusterWeights } from "./kubernetes/cluster-weights.ts";
export {
  GpuCluster,
  type GpuClusterProps,
  type NodePool,
  type Toleration,
} from "./kubernetes/gpu-cluster.ts";
export {
  InferenceDeployment,
  type InferenceDeploymentProps,
} from "./kubernetes/inference-deployment.ts";
export {
  type DeployWith,
  InferenceNamespace,
  type InferenceNamespaceProps,
} from "./kubernetes/inference-namespace.ts";
export { InferenceRelease, type InferenceReleaseProps } from "./kubernetes/inference-release.ts";
export {
  type ClusterLocation,
  EnvironmentOutput,
  type EnvironmentOutputProps,
} from "./stack/environment-output.ts";
export { keepState, type StateBackend } from "./stack/state.ts";
