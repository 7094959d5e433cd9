import { gpuResource } from "../../contract/gpus.ts";
import { weightsMiB } from "../../contract/model-shapes.ts";
import { embedPort, tritonPorts } from "../../contract/ports.ts";
import type { CpuScaling } from "../checks/kubernetes.ts";
import type { Scraping } from "../checks/scaling.ts";
import type { ChartValues } from "./chart-values.ts";
import {
  chartImage,
  chartModels,
  chartQuota,
  chartResources,
  chartServer,
} from "./chart-values-for.ts";
import type {
  ClusterInferenceProps,
  ClusterModel,
  ClusterPlan,
  PlannedTower,
} from "./cluster-plan.ts";
import type { GpuCluster } from "./gpu-cluster.ts";

const tokenKey = "api-key";

export function clusterChartValues(props: ClusterInferenceProps, plan: ClusterPlan): ChartValues {
  const { embed, triton, quota, scraping, serviceMonitor, cluster } = props;
  return {
    ...(props.imagePullSecret !== undefined && {
      imagePullSecrets: [{ name: props.imagePullSecret }],
    }),
    ...chartModels(plan.models),
    model: weightsValues(props.model, plan.towers),
    embed: {
      image: chartImage(embed.image),
      backend: embed.backend,
      accelerator: plan.embed.gpus > 0 ? "gpu" : "cpu",
      resources: chartResources(embed.resources),
      ...chartServer(embed.server),
      service: { type: embed.service },
      auth: {
        ...(embed.keySecret !== undefined && {
          existingSecret: embed.keySecret,
          existingSecretKey: tokenKey,
        }),
        ...(embed.keysSecret !== undefined && { keysSecret: embed.keysSecret }),
        allowAnonymous: embed.allowAnonymous,
      },
      ...(embed.tls !== undefined && { tls: { secretName: embed.tls.secret } }),
      ...(embed.allowPlaintext && { allowPlaintext: true }),
      ...scalingValues(embed.autoscaler),
      budget: { enabled: true, ...embed.budget },
      ...(plan.embed.gpus > 0 && gpuNodeScheduling(cluster)),
      ...scrapeAnnotations(scraping, embedPort, embed.tls === undefined ? "http" : "https"),
    },
    triton: triton.enabled ? tritonValues(props, plan) : { enabled: false },
    quota: chartQuota(quota, cluster.accelerator === "gpu" ? quota.gpus : 0, cluster.resourceName),
    ...(cluster.resourceName !== gpuResource && { gpuResourceName: cluster.resourceName }),
    serviceMonitor: {
      enabled: scraping === "service-monitor",
      labels: { ...serviceMonitor.labels },
      interval: `${serviceMonitor.intervalSeconds}s`,
    },
  };
}

function tritonValues(props: ClusterInferenceProps, plan: ClusterPlan): ChartValues["triton"] {
  const { triton, cluster } = props;
  const { gpus, compiles, startSeconds } = plan.triton;
  const { metric, source, prometheus, targetQueueMilliseconds } = triton.autoscaler;
  const scaling = scalingValues(triton.autoscaler);
  const { storageClass, accessMode, sizeGiB } = triton.engineCache;
  return {
    enabled: true,
    server: triton.server,
    backend: triton.backend,
    ...(plan.triton.served === "u8" && { modelKind: "u8" }),
    ...(triton.server === "tritonserver" && { image: chartImage(triton.image) }),
    gpus,
    spareGpu: triton.spareGpu,
    modelConfig: {
      texts: Object.fromEntries(
        plan.towers.map(({ tritonModel, config }) => [tritonModel, config.text]),
      ),
    },
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

function weightsValues(model: ClusterModel, towers: readonly PlannedTower[]): ChartValues["model"] {
  const [only, ...others] = towers;
  const { folder, url, sha256 } = others.length === 0 ? (only?.files ?? {}) : {};
  const isOnVolume = model.weights === "pvc";
  const entries = towers.flatMap((tower) => towerEntry(tower, others.length === 0, isOnVolume));
  const common = {
    ...(sha256 !== undefined && { sha256 }),
    ...(entries.length > 0 && { towers: Object.fromEntries(entries) }),
  };
  switch (model.weights) {
    case "image":
      return { weights: "image", ...common };
    case "pvc": {
      const subPath = folder === undefined ? {} : { subPath: folder };
      return { weights: "pvc", pvc: { claimName: model.claim, ...subPath }, ...common };
    }
    case "init": {
      const init = { ...(url !== undefined && { url }), ...downloadLimit(towers) };
      return { weights: "init", ...(Object.keys(init).length > 0 && { init }), ...common };
    }
  }
}

/** Disk space of each download, if the largest file and a model optimised from it exceed the chart's default of 1 GiB. */
function downloadLimit(towers: readonly PlannedTower[]): { readonly sizeLimit?: string } {
  const largestMiB = Math.max(...towers.map(({ tower }) => weightsMiB(tower.tower, "fp32")));
  const sizeGiB = Math.ceil((2 * largestMiB) / 1024);
  return sizeGiB > 1 ? { sizeLimit: `${sizeGiB}Gi` } : {};
}

/** Entry of `model.towers`; none for a single tower without a downloaded tokenizer. */
function towerEntry({ folder: name, files }: PlannedTower, isOnly: boolean, isOnVolume: boolean) {
  const { folder, url, sha256, tokenizer } = files;
  const entry = {
    ...(!isOnly && {
      ...(isOnVolume && { subPath: folder ?? "" }),
      ...(url !== undefined && { url }),
      ...(sha256 !== undefined && { sha256 }),
    }),
    ...(tokenizer?.url !== undefined && {
      tokenizer: { url: tokenizer.url, sha256: tokenizer.sha256 },
    }),
  };
  return Object.keys(entry).length === 0 ? [] : [[name, entry] as const];
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
function scrapeAnnotations(scraping: Scraping, port: number, scheme = "http") {
  if (scraping !== "annotations") return {};
  return {
    podAnnotations: {
      "prometheus.io/scrape": "true",
      "prometheus.io/port": String(port),
      "prometheus.io/path": "/metrics",
      ...(scheme === "https" && { "prometheus.io/scheme": scheme }),
    },
  };
}
