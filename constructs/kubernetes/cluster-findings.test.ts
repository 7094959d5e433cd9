import { expect, test } from "vitest";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import { TerraformStack, Testing } from "../terraform/cdktf.ts";
import { clusterFindings } from "./cluster-findings.ts";
import { type ClusterInferenceProps, clusterPlan } from "./cluster-plan.ts";
import { GpuCluster } from "./gpu-cluster.ts";

const resources = {
  requests: { cpuMillicores: 1_000, memoryMiB: 1_024 },
  limits: { cpuMillicores: 1_000, memoryMiB: 1_024 },
};
const autoscaler = { minReplicas: 2, maxReplicas: 2, cpuPercent: 60, scaleDownWindowSeconds: 60 };
const budget = { maxUnavailable: 1 };
const large = { cpuMillicores: 100_000, memoryMiB: 100_000 };

/** Two pods of Triton and two gateways, on GPUs with `vramMiB`. */
function findings(
  vramMiB: number,
  instancesPerGpu: number,
  models?: readonly ModelSpec[],
): readonly string[] {
  const cluster = new GpuCluster(new TerraformStack(Testing.app(), "test"), "cluster", {
    kubeconfig: "~/.kube/config",
    context: "gpu",
    accelerator: "gpu",
    pool: {
      gpu: "l4",
      nodes: 2,
      gpusPerNode: 1,
      runtimeClass: "nvidia",
      selector: {},
      tolerations: [],
    },
  });
  const props: ClusterInferenceProps = {
    ...(models !== undefined && { models }),
    cluster: Object.assign(cluster, { gpu: { ...cluster.gpu, vramMiB } }),
    chart: "helm/clipstack",
    namespace: "clipstack",
    createNamespace: true,
    model: { weights: "image" },
    embed: {
      image: "embed:1",
      backend: "triton",
      service: "ClusterIP",
      allowAnonymous: false,
      resources,
      autoscaler,
      budget,
    },
    triton: {
      enabled: true,
      server: "tritonserver",
      backend: "onnxruntime",
      image: "triton:1",
      gpusPerPod: 1,
      spareGpu: false,
      maxQueueDelayMicroseconds: 5_000,
      instancesPerGpu,
      optimumBatchSize: 16,
      cudaGraphs: false,
      engineCache: { enabled: false, accessMode: "ReadWriteMany", sizeGiB: 1 },
      resources,
      autoscaler: {
        ...autoscaler,
        metric: "cpu",
        source: "keda",
        targetQueueMilliseconds: 50,
      },
      budget,
    },
    scraping: "none",
    serviceMonitor: { labels: {}, intervalSeconds: 15 },
    quota: { requests: large, limits: large, pods: 10, gpus: 2 },
  };

  return clusterFindings(props, clusterPlan(props));
}

test("accepts models that fit the memory of a GPU", () => {
  expect(findings(23_034, 16)).toEqual([]);
});

test("rejects models that do not fit the memory of a GPU", () => {
  expect(findings(8_192, 16)).toEqual([
    "nodePool.gpu must have room for the models: GPU 0 has 8192 MiB, 7372 usable, and they need 9984 (triton 9984): serve fewer models or towers, disable a service, or use a GPU with more memory",
  ]);
});

test("rejects a memory limit of Triton below the weights of the models; a gateway has none", () => {
  const models = [modelCatalogue.get("openclip-vit-l14")!];
  expect(findings(46_068, 1, models)).toEqual([
    "triton.resources.limits.memoryMiB must be more than 1632 MiB, the weights of the models, got 1024 MiB",
  ]);
});
