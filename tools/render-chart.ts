import { readFileSync } from "node:fs";
import { stringify } from "yaml";
import { z } from "zod";
import { type ChartValues, chartValues } from "../constructs/kubernetes/chart-values.ts";
import { chartValuesForKind } from "../constructs/kubernetes/chart-values-for.ts";
import { tritonStartSeconds } from "../constructs/triton-times.ts";
import { deployedModelConfig, type TunableModel } from "../contract/deployed-model-config.ts";
import { embedPaths } from "../contract/embed-api.ts";
import { engineCacheMount, modelVariants } from "../contract/model-config.ts";
import { openclipVitB32, openclipVitB32Trt } from "../contract/model-signature.ts";
import { oipPaths } from "../contract/oip-paths.ts";
import {
  gpuScaling,
  livenessProbe,
  minReadySeconds,
  podTmpMiB,
  podUser,
  readinessProbe,
  revisionHistoryLimit,
  startSeconds,
  startupProbe,
  stopMarginSeconds,
  surge,
  templateHashLabel,
  tritonTmpMiB,
} from "../contract/pods.ts";
import { embedPort, tritonPorts } from "../contract/ports.ts";
import { modelRepositoryMount, type ServerEnvName } from "../contract/server-env.ts";
import {
  modelControlKeyVariable,
  renderTritonCommand,
  restrictModelControl,
} from "../contract/triton-flags.ts";
import { clusterImage } from "../stacks/image-builds.ts";
import { parseSettings } from "../stacks/settings.ts";
import { schemaTable } from "../stacks/settings-docs.ts";
import type { RenderedFile } from "./rendered-file.ts";

const chart = "helm/clipstack";
const source = "constructs/kubernetes/chart-values.ts";

/** The chart's values, their schema and their table, values files, and the facts that its templates share with the server. */
export function chartFiles(): readonly RenderedFile[] {
  return [
    { path: `${chart}/values.yaml`, text: valuesText() },
    { path: `${chart}/values.schema.json`, text: `${JSON.stringify(schema, null, 2)}\n` },
    { path: `${chart}/README.md`, text: readmeText() },
    { path: `${chart}/templates/_contract.tpl`, text: contractText() },
    { path: `${chart}/prometheus/adapter-rules.yaml`, text: adapterRules() },
    ...modelConfigFiles(),
    ...valuesFiles(),
  ];
}

/** What this needs of a JSON Schema. */
interface Schema {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly (string | number)[];
  readonly properties?: Readonly<Record<string, Schema>>;
}

// draft 7: what every Helm 3 reads
const schema = {
  title: "Values of the chart clipstack",
  ...z.toJSONSchema(chartValues, { io: "input", target: "draft-7" }),
} as Schema;

/** Between these lines of the README is the table of the values; the rest of it is written by hand. */
const table = {
  begin:
    "<!-- The table is rendered by `npm run render` from constructs/kubernetes/chart-values.ts. -->",
  end: "<!-- End of the table. -->",
} as const;

function readmeText(): string {
  return withTable(readFileSync(new URL(`../${chart}/README.md`, import.meta.url), "utf8"));
}

/** The README with the table of today. @throws {Error} where its place is gone. */
export function withTable(readme: string): string {
  const [before, rest] = readme.split(`${table.begin}\n`);
  const after = rest?.split(`${table.end}\n`)[1];
  if (after === undefined) {
    throw new Error(`${chart}/README.md: must have the two lines around its table`);
  }
  const { global, ...properties } = schema.properties ?? {};
  const rows = schemaTable("name", { ...schema, properties });
  return [`${before}${table.begin}`, "", ...rows, "", `${table.end}\n${after}`].join("\n");
}

const width = 116;

/** `values.yaml`: every value with its default, what has none as a comment. */
function valuesText(): string {
  return [
    `# Rendered by 'npm run render' from ${source}. Do not edit: give values of your own with --values.`,
    "",
    ...valueLines(schema, 0),
    "",
  ].join("\n");
}

function valueLines({ properties = {} }: Schema, depth: number): readonly string[] {
  const indent = "  ".repeat(depth);
  return Object.entries(properties)
    .filter(([key]) => key !== "global")
    .flatMap(([key, property], index) => {
      const comment = [property.description, choicesOf(property)].filter(Boolean).join(" ");
      const lines = wrapped(comment, width - indent.length - 2).map((line) => `${indent}# ${line}`);
      const gap = depth === 0 && index > 0 ? [""] : [];
      if (property.properties !== undefined && hasDefaults(property)) {
        return [...gap, ...lines, `${indent}${key}:`, ...valueLines(property, depth + 1)];
      }
      if (property.default === undefined) return [...gap, ...lines, `${indent}# ${key}:`];
      return [...gap, ...lines, `${indent}${key}: ${flow(property.default)}`];
    });
}

/** Whether something in an object has a default; where nothing has, the object is one value. */
function hasDefaults({ properties = {} }: Schema): boolean {
  return Object.values(properties).some((it) => it.default !== undefined || hasDefaults(it));
}

/** The words of a choice that its description does not explain. */
function choicesOf({ enum: words = [], description = "" }: Schema): string {
  const unexplained = words.some((it) => it !== "" && !description.includes(`\`${it}\``));
  return unexplained ? `One of ${words.filter((it) => it !== "").join(", ")}.` : "";
}

/** A value on one line, as YAML. */
function flow(value: unknown): string {
  return stringify(value, {
    collectionStyle: "flow",
    defaultStringType: "PLAIN",
    lineWidth: 0,
  }).trimEnd();
}

function wrapped(text: string, columns: number): readonly string[] {
  const lines: string[] = [];
  for (const word of text.split(" ").filter((it) => it !== "")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= columns) {
      lines[lines.length - 1] = `${last} ${word}`;
    } else lines.push(word);
  }
  return lines;
}

/** Stands in the engine cache's prefix of a rendered configuration: a template puts there what engines depend on. */
const enginesMark = "CHART-ENGINES";

const modelOf = {
  onnxruntime: openclipVitB32.name,
  tensorrt: openclipVitB32Trt.name,
} as const satisfies Readonly<Record<string, TunableModel>>;

/**
 * How long a request waits in Triton's queue, in milliseconds, over a window of time. The counters of all models are summed before
 * they are divided: a mean of the models' own times would count an idle model as much as a busy one. A pod without traffic
 * has 0 and not nothing: an autoscaler needs a value. `BY`, `SELECTOR` and `WINDOW` stand for labels, a selector and a time.
 */
const queueTime = {
  expression: [
    "sum by (BY) (rate(nv_inference_queue_duration_us{SELECTOR}[WINDOW]))",
    "/ clamp_min(sum by (BY) (rate(nv_inference_request_success{SELECTOR}[WINDOW])), 0.001)",
    "/ 1000",
  ].join(" "),
  record: "clipstack:triton_queue_milliseconds:rate",
  adapterMetric: "clipstack_triton_queue_milliseconds",
} as const;

/** Variables of the embed server that other values are for. */
const ownEnv = [
  "BACKEND",
  "EXECUTION_PROVIDER",
  "INTRA_OP_THREADS",
  "MODEL_PATH",
  "TRITON_GRPC_URLS",
  "TRITON_MODEL",
  "HOST",
  "PORT",
  "API_KEY",
  "ALLOW_ANONYMOUS",
  "SHUTDOWN_GRACE_SECONDS",
  // a pod's probes and Service speak HTTP
  "TLS_CERT_FILE",
  "TLS_KEY_FILE",
] as const satisfies readonly ServerEnvName[];

/** Facts that the templates share with the server, as JSON in a named template. */
function contractText(): string {
  const facts = {
    ports: {
      embed: embedPort,
      tritonHttp: tritonPorts.http,
      tritonGrpc: tritonPorts.grpc,
      tritonMetrics: tritonPorts.metrics,
    },
    paths: { ...embedPaths, tritonReady: oipPaths.ready, tritonLive: oipPaths.live },
    probes: { startup: startupProbe, readiness: readinessProbe, liveness: livenessProbe },
    startSeconds: {
      embed: startSeconds,
      triton: tritonStartSeconds(false, 1),
      tritonEngine: tritonStartSeconds(true, 1) - tritonStartSeconds(true, 0),
    },
    stopMarginSeconds,
    minReadySeconds,
    revisionHistoryLimit,
    surge,
    gpuScaling,
    templateHashLabel,
    user: podUser,
    tmpMiB: podTmpMiB,
    tritonTmpMiB,
    repository: modelRepositoryMount,
    engineCache: engineCacheMount,
    enginesMark,
    models: modelOf,
    queueTime,
    ownEnv,
    variants: { "0": "cpu", "1": "single-gpu", "4": "multi-gpu-4x" },
    // NVIDIA's own image: it has no model
    tritonRepository: chartValues.parse({}).triton.image.repository,
    weightsFolder: `${openclipVitB32.name}/1`,
    weightsFile: "model.onnx",
    tritonCommand: renderTritonCommand({
      "model-repository": modelRepositoryMount,
      // a request of 32 images as JSON text is about 95 MB; Triton's default of 64 MiB would refuse it
      "http-max-input-size": 128 * 1024 * 1024,
      "strict-readiness": true,
      "exit-on-error": true,
      "disable-auto-complete-config": true,
    }),
    modelControlKeyVariable,
    modelControlRestriction: Object.entries(
      restrictModelControl(`$(${modelControlKeyVariable})`),
    ).flatMap(([flag, values]) => values.map((value) => `--${flag}=${value}`)),
  };
  return [
    "{{- /* Rendered by 'npm run render' from contract. Do not edit. */ -}}",
    '{{- define "clipstack.contract" -}}',
    JSON.stringify(facts, null, 2),
    "{{- end -}}",
    "",
  ].join("\n");
}

/** For the Prometheus adapter: the queue time as a metric of pods. Its `<<…>>` are filled in by the adapter. */
function adapterRules(): string {
  const rule = {
    seriesQuery: 'nv_inference_queue_duration_us{namespace!="",pod!=""}',
    resources: {
      overrides: { namespace: { resource: "namespace" }, pod: { resource: "pod" } },
    },
    name: { as: queueTime.adapterMetric },
    metricsQuery: queueTime.expression
      .replaceAll("BY", "<<.GroupBy>>")
      .replaceAll("SELECTOR", "<<.LabelMatchers>>")
      .replaceAll("WINDOW", "1m"),
  };
  return [
    "# Rendered by 'npm run render'. Do not edit.",
    "# Values of the chart prometheus-adapter, for triton.autoscaling.source prometheus-adapter. Where Prometheus reads the",
    "# metrics less often than every 15 seconds, write four times that in place of 1m.",
    "",
    stringify({ rules: { custom: [rule] } }, { lineWidth: 0 }),
  ].join("\n");
}

/** `model-configs/<model>/<variant>.pbtxt`: Triton's configuration where the values give none. */
function modelConfigFiles(): readonly RenderedFile[] {
  return Object.values(modelOf).flatMap((model) =>
    modelVariants.map((variant) => {
      const compiles = model === openclipVitB32Trt.name && variant !== "cpu";
      const { text, problems } = deployedModelConfig(model, variant, {
        ...(compiles && { engineCachePrefix: enginesMark }),
      });
      if (problems.length > 0) throw new Error(problems.join("; "));
      return { path: `${chart}/model-configs/${model}/${variant}.pbtxt`, text };
    }),
  );
}

interface ValuesFile {
  readonly name: string;
  /** What it is for, lines of a comment. */
  readonly about: readonly string[];
  readonly values: ChartValues;
}

function valuesFiles(): readonly RenderedFile[] {
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
    about: ["Defaults of the stack kind as values: the embed server on a kind cluster, on CPU."],
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

/** Names that stand for those of a registry: nothing is published. */
const registry = "registry.example/clipstack";

/** The embed server on CPU nodes of any cluster. */
const cpuFile: ValuesFile = {
  name: "values-cpu.yaml",
  about: [
    "The embed server on CPU nodes of any cluster, with 2 to 8 pods by CPU. The image has the weights (docs/images.md).",
    "Replace registry.example by the registry that has your images, and the tag by a digest.",
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

/** The same in front of Tritons. */
const gateway = {
  image: { repository: `${registry}/embed`, tag: "0.1.0-cpu" },
  backend: "triton",
  resources: {
    requests: { cpu: "1", memory: "512Mi" },
    limits: { cpu: "4", memory: "1Gi" },
  },
} as const;

/** What holds for one GPU and for four. */
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
    "One GPU: Triton with ONNX Runtime on it, and the embed server as gateway in front of it.",
    "Triton's image has the weights ('WEIGHTS=image docker buildx bake triton'). A rolling update and a drain leave a gap: there",
    "is no second GPU to start the next pod on. Replace registry.example by the registry that has your images.",
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
    "Four GPUs: 2 to 4 Tritons with TensorRT, a GPU each, by the queue time that KEDA reads from Prometheus, and 2 to 6",
    "gateways in front of them. Each pod fetches the weights; TensorRT's engines lie on a volume that all nodes can mount.",
    "Replace registry.example, models.example and the checksum, and the address of Prometheus.",
  ],
  values: {
    model: {
      weights: "init",
      sha256: "0".repeat(64),
      init: { url: "https://models.example/openclip_vit_b32/model.onnx" },
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
