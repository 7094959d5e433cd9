import { embedPort, tritonPorts } from "../../contract/ports.ts";
import type { CpuScaling } from "../checks/kubernetes.ts";
import type { Scraping } from "../checks/scaling.ts";
import type { ChartValues } from "./chart-values.ts";
import { chartImage, chartQuota, chartResources } from "./chart-values-for.ts";
import type { ClusterInferenceProps, ClusterModel, ClusterPlan } from "./cluster-plan.ts";
import type { GpuCluster } from "./gpu-cluster.ts";

const tokenKey = "api-key";

export function clusterChartValues(props: ClusterInferenceProps, plan: ClusterPlan): ChartValues {
  const { embed, triton, quota, scraping, serviceMonitor, cluster } = props;
  return {
    ...(props.imagePullSecret !== undefined && {
      imagePullSecrets: [{ name: props.imagePullSecret }],
    }),
    model: modelValues(props.model),
    embed: {
      image: chartImage(embed.image),
      backend: embed.backend,
      accelerator: plan.embed.gpus > 0 ? "gpu" : "cpu",
      resources: chartResources(embed.resources),
      service: { type: embed.service },
      auth: {
        ...(embed.keySecret !== undefined && {
          existingSecret: embed.keySecret,
          existingSecretKey: tokenKey,
        }),
        allowAnonymous: embed.allowAnonymous,
      },
      ...scalingValues(embed.autoscaler),
      budget: { enabled: true, ...embed.budget },
      ...(plan.embed.gpus > 0 && gpuNodeScheduling(cluster)),
      ...scrapeAnnotations(scraping, embedPort),
    },
    triton: triton.enabled ? tritonValues(props, plan) : { enabled: false },
    quota: chartQuota(quota, cluster.accelerator === "gpu" ? quota.gpus : 0),
    serviceMonitor: {
      enabled: scraping === "service-monitor",
      labels: { ...serviceMonitor.labels },
      interval: `${serviceMonitor.intervalSeconds}s`,
    },
  };
}

function tritonValues(props: ClusterInferenceProps, plan: ClusterPlan): ChartValues["triton"] {
  const { triton, cluster } = props;
  const { gpus, variant, config, compiles, startSeconds } = plan.triton;
  const { metric, source, prometheus, targetQueueMilliseconds } = triton.autoscaler;
  const scaling = scalingValues(triton.autoscaler);
  const { storageClass, accessMode, sizeGiB } = triton.engineCache;
  return {
    enabled: true,
    server: triton.server,
    backend: triton.backend,
    ...(triton.server === "tritonserver" && { image: chartImage(triton.image) }),
    gpus,
    spareGpu: triton.spareGpu,
    modelConfig: { variant, text: config.text },
    ...(compiles &&
      triton.engineCache.enabled && {
        engineCache: {
          enabled: true,
          accessMode,
          size: `${sizeGiB}Gi`,
          ...(storageClass !== undefined && { storageClass }),
        },
      }),
    resources: chartResources(triton.resources),
    ...scaling,
    ...(scaling.autoscaling.enabled && {
      autoscaling: {
        ...scaling.autoscaling,
        metric,
        ...(metric === "queue-time" && {
          source,
          targetQueueMilliseconds,
          ...(source === "keda" && { prometheus: { url: prometheus } }),
        }),
      },
    }),
    budget: { enabled: true, ...triton.budget },
    startSeconds,
    ...(gpus > 0 && gpuNodeScheduling(cluster)),
    ...scrapeAnnotations(props.scraping, tritonPorts.metrics),
  };
}

function modelValues(model: ClusterModel): ChartValues["model"] {
  const name = model.name === undefined ? {} : { name: model.name };
  switch (model.weights) {
    case "image":
      return { ...name, weights: "image" };
    case "pvc":
      return {
        ...name,
        weights: "pvc",
        pvc: {
          claimName: model.claim,
          ...(model.folder !== undefined && { subPath: model.folder }),
        },
        ...(model.sha256 !== undefined && { sha256: model.sha256 }),
      };
    case "init":
      return { ...name, weights: "init", init: { url: model.url }, sha256: model.sha256 };
  }
}

/** Values of the autoscaler, or a fixed number of pods if the minimum equals the maximum. */
function scalingValues(scaling: CpuScaling) {
  const { minReplicas, maxReplicas, cpuPercent, scaleDownWindowSeconds } = scaling;
  return minReplicas === maxReplicas
    ? { replicas: minReplicas, autoscaling: { enabled: false } }
    : {
        autoscaling: {
          enabled: true,
          minReplicas,
          maxReplicas,
          cpuPercent,
          scaleDownWindowSeconds,
        },
      };
}

function gpuNodeScheduling({ pool }: GpuCluster) {
  return {
    runtimeClassName: pool.runtimeClass === "none" ? "" : pool.runtimeClass,
    nodeSelector: { ...pool.selector },
    tolerations: pool.tolerations.map((toleration) => ({ ...toleration })),
  };
}

/** Annotations by which a Prometheus without the operator discovers pods. */
function scrapeAnnotations(scraping: Scraping, port: number) {
  if (scraping !== "annotations") return {};
  return {
    podAnnotations: {
      "prometheus.io/scrape": "true",
      "prometheus.io/port": String(port),
      "prometheus.io/path": "/metrics",
    },
  };
}
