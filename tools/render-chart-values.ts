import { stringify } from "yaml";
import { type ChartValues, chartValues } from "../constructs/kubernetes/chart-values.ts";
import { chartValuesForKind } from "../constructs/kubernetes/chart-values-for.ts";
import { parseSettings } from "../stacks/settings/settings.ts";
import { clusterImage } from "../stacks/shared/image-builds.ts";
import type { RenderedFile } from "./rendered-file.ts";

interface ValuesFile {
  readonly name: string;
  /** Lines of the comment at the top of the file. */
  readonly about: readonly string[];
  readonly values: ChartValues;
}

/** Values files of the chart in the folder `chart`. */
export function valuesFiles(chart: string): readonly RenderedFile[] {
  return [kindFile(), cpuFile, gpuFile, fourGpusFile].map(({ name, about, values }) => {
    chartValues.parse(values);
    const heading = [`Rendered by 'npm run render'. Do not edit.`, ...about];
    return {
      path: `${chart}/${name}`,
      text: `${heading.map((line) => `# ${line}`).join("\n")}\n\n${stringify(values, { lineWidth: 0 })}`,
    };
  });
}

function kindFile(): ValuesFile {
  const { embed, autoscaler, budget, quota, limitRange } = parseSettings("kind", "defaults", "");
  return {
    name: "values-kind.yaml",
    about: ["Defaults of the stack kind as values: embed server on a kind cluster, on CPU."],
    values: chartValuesForKind({
      ...embed,
      image: embed.image.source === "local" ? embed.image.name : clusterImage,
      autoscaler,
      budget,
      quota,
      limitRange,
    }),
  };
}

/** Placeholder for a registry; no image is published. */
const registry = "registry.example/clipstack";

const cpuFile: ValuesFile = {
  name: "values-cpu.yaml",
  about: [
    "Embed server on CPU nodes of any cluster, scaled from 2 to 8 pods by CPU. The image contains the weights (docs/images.md).",
    "Replace registry.example with your registry and the tag with a digest.",
  ],
  values: {
    embed: {
      image: { repository: `${registry}/embed`, tag: "0.1.0-k8s-cpu" },
      resources: {
        requests: { cpu: "2", memory: "1536Mi" },
        limits: { cpu: "4", memory: "2Gi" },
      },
      autoscaling: { enabled: true, minReplicas: 2, maxReplicas: 8, cpuPercent: 70 },
      topologySpread: { enabled: true, topologyKey: "topology.kubernetes.io/zone" },
    },
  },
};

const gpuNodes: NonNullable<ChartValues["triton"]> = {
  runtimeClassName: "nvidia",
  nodeSelector: { "nvidia.com/gpu.present": "true" },
  tolerations: [{ key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule" }],
};

const gateway = {
  image: { repository: `${registry}/embed`, tag: "0.1.0-cpu" },
  backend: "triton",
  resources: {
    requests: { cpu: "1", memory: "512Mi" },
    limits: { cpu: "4", memory: "1Gi" },
  },
} as const;

/** Triton values shared by one and four GPUs. */
const tensorrtOnGpu = {
  enabled: true,
  backend: "tensorrt",
  image: { repository: "nvcr.io/nvidia/tritonserver", tag: "26.07-py3" },
  gpus: 1,
  resources: {
    requests: { cpu: "4", memory: "8Gi" },
    limits: { cpu: "8", memory: "16Gi" },
  },
  ...gpuNodes,
} as const;

const gpuFile: ValuesFile = {
  name: "values-gpu.yaml",
  about: [
    "One GPU: Triton with ONNX Runtime, and the embed server as gateway.",
    "Triton's image contains the weights ('WEIGHTS=image docker buildx bake triton'). A rolling update and a node drain interrupt the",
    "service, because the new pod has no second GPU to start on. Replace registry.example with your registry.",
  ],
  values: {
    model: { weights: "image" },
    embed: gateway,
    triton: {
      ...tensorrtOnGpu,
      backend: "onnxruntime",
      image: { repository: `${registry}/triton`, tag: "0.1.0" },
      replicas: 1,
    },
    quota: { enabled: true, hard: { "requests.nvidia.com/gpu": "1" } },
  },
};

const fourGpusFile: ValuesFile = {
  name: "values-gpu-4x.yaml",
  about: [
    "Four GPUs: 2 to 4 Triton servers with TensorRT, one GPU each, scaled by the queue time that KEDA reads from Prometheus, and 2 to 6",
    "gateways. Each pod downloads the weights; the TensorRT engines are on a volume that all nodes can mount.",
    "Replace registry.example, models.example, the checksum and the address of Prometheus.",
  ],
  values: {
    model: {
      weights: "init",
      sha256: "0".repeat(64),
      init: { url: "https://models.example/openclip_vit_b32/model.trt-fp16.onnx" },
    },
    embed: {
      ...gateway,
      autoscaling: { enabled: true, minReplicas: 2, maxReplicas: 6, cpuPercent: 70 },
    },
    triton: {
      ...tensorrtOnGpu,
      engineCache: { enabled: true, accessMode: "ReadWriteMany", size: "2Gi" },
      autoscaling: {
        enabled: true,
        minReplicas: 2,
        maxReplicas: 4,
        metric: "queue-time",
        source: "keda",
        targetQueueMilliseconds: 50,
        prometheus: { url: "http://prometheus-operated.monitoring.svc:9090" },
      },
    },
    quota: { enabled: true, hard: { "requests.nvidia.com/gpu": "4" } },
    serviceMonitor: { enabled: true },
    prometheusRule: { enabled: true },
  },
};
