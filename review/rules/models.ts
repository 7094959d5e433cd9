import { renderFinding } from "../../constructs/checks/findings.ts";
import { memoryFindings } from "../../constructs/checks/memory.ts";
import { type VramUse, vramFindings, weightsOfMiB } from "../../constructs/checks/vram.ts";
import { engineCacheMount, executionInstances } from "../../contract/model-config.ts";
import type { StackChange } from "../input/change.ts";
import { chartValuesPath, containerPath, podContainerPath } from "./example-paths.ts";
import {
  environmentOf,
  gpuOf,
  podContainers,
  releasesOf,
  resourcesOf,
  servedSpecs,
  type Workload,
  workloadsOf,
} from "./facts.ts";
import { configOf, deployedConfigs, problemsOf, tensorrtOf } from "./model-configs.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import {
  option,
  type ServiceContainer,
  serviceContainers,
  tritonContainers,
  visibleGpus,
  volumesOf,
} from "./service-containers.ts";
import { at, block, blocks, memoryMiB, number, refersTo, text } from "./values.ts";

const configText = (service: string) =>
  containerPath(`${service}/configuration/apply/container`, "upload", 0, "content");

/** First model in the output `environment`. */
const modelInOutput = ["output", "environment", "value", "models", 0] as const;

const tensorrtSettings = [
  "triton:",
  "  backend: tensorrt",
  `  image: registry.example/clipstack/triton@sha256:${"0123456789abcdef".repeat(4)}`,
  "  engineCache: { enabled: true }",
].join("\n");

/** Host memory of the weights of all models; `undefined` without a model or if unknown. */
function hostWeightsMiB(
  change: StackChange,
  kind: ServiceContainer["kind"],
  variable: (name: string) => string | undefined,
): number | undefined {
  if (kind === "other" || (kind === "embed" && variable("BACKEND") === "triton")) return undefined;
  const models = environmentOf(change)?.models;
  if (models === undefined) return undefined;
  return weightsOfMiB(models, variable("MODEL_PRECISION") === "int8" ? "int8" : "fp32");
}

function vramBackend({ kind }: ServiceContainer, tensorrt: boolean): VramUse["backend"] {
  if (kind === "baseline") return "pytorch";
  return tensorrt ? "tensorrt" : "onnxruntime";
}

/** Returns an environment variable of a pod's server by name. */
function variablesOf(
  change: StackChange,
  { address, kind, pod }: Pick<Workload, "address" | "kind" | "pod">,
): (name: string) => string | undefined {
  const release = releasesOf(change).find(({ resource }) => resource.address === address)?.values;
  const component = block(release?.[kind]);
  const variables = blocks(component?.extraEnv ?? podContainers(pod)[0]?.env);
  return (name) =>
    name === "BACKEND" && component !== undefined
      ? text(component.backend)
      : text(variables.find((it) => it.name === name)?.value);
}

/** Model configurations, compiled engines and memory. */
export const modelRules: readonly ReviewRule[] = [
  rule({
    id: "model-config-valid",
    severity: "error",
    title: "Model configurations are valid.",
    rationale:
      "Triton rejects unknown fields only at start, after the old container has been removed. Some errors it accepts silently: CUDA graphs that ONNX Runtime ignores, a mistyped TensorRT parameter, a preferred batch size above the maximum.",
    inputs:
      "Every `config.pbtxt` in uploads and in the chart values, validated against `model_config.proto` and the ONNX Runtime backend's parameters.",
    fix: "correct the field; configurations are rendered from the settings, so check for an override",
    example: {
      stack: "single-gpu",
      message:
        "openclip_vit_b32: dynamic_batching.preferred_batch_size must be 1 to max_batch_size (32), got 64",
      edits: [
        {
          path: configText("triton-onnx"),
          failingText: "dynamic_batching { preferred_batch_size: [8, 64]",
          passingText: "dynamic_batching {",
        },
      ],
    },
    find: each(deployedConfigs, (deployed, change) => [
      ...(deployed.problem === undefined ? [] : [deployed.problem]),
      ...problemsOf(deployed, change),
    ]),
  }),
  rule({
    id: "queue-delay-goal",
    severity: "warning",
    title: "The queue delay is at most half of the latency goal.",
    rationale:
      "Every request that does not fill a batch waits for the queue delay: under low load it only adds latency.",
    inputs:
      "`max_queue_delay_microseconds` of every model configuration, compared with `review.p99GoalMilliseconds` in the settings; without a goal, a delay above 100 ms is reported.",
    fix: "lower maxQueueDelayMicroseconds, or raise review.p99GoalMilliseconds",
    example: {
      stack: "single-gpu",
      message:
        "max_queue_delay_microseconds should be at most 25000, half of the goal of 50 ms (p99), got 40000",
      goals: { p99Milliseconds: 50 },
      edits: [
        {
          path: configText("triton-onnx"),
          failingText: "max_queue_delay_microseconds: 40000",
          passingText: "max_queue_delay_microseconds: 0",
        },
      ],
    },
    find: each(deployedConfigs, ({ config }, { goals }) => {
      const goal = goals?.p99Milliseconds;
      const highest = ((goal ?? 200) * 1000) / 2;
      const delay = config?.dynamic_batching?.max_queue_delay_microseconds ?? 0;
      const reason = goal === undefined ? "" : `half of the goal of ${goal} ms (p99), `;
      return delay <= highest
        ? undefined
        : `max_queue_delay_microseconds should be at most ${highest}, ${reason}got ${delay}`;
    }),
  }),
  rule({
    id: "model-warm-up",
    severity: "warning",
    title: "GPU models are warmed up with the smallest and largest batch.",
    rationale:
      "The first batch of each size initialises kernels and memory: without a warm-up, the first requests are delayed, with TensorRT by minutes.",
    inputs: "`model_warmup` of model configurations with an instance group on GPUs.",
    fix: "add warm-ups for batch 1 and max_batch_size",
    example: {
      stack: "single-gpu",
      message: "model_warmup should have batches of 32, got 1, 4, 8, 16, 16",
      edits: [
        {
          path: configText("triton-trt"),
          failingText: "batch_size: 16\n    inputs",
          passingText: "batch_size: 32\n    inputs",
        },
      ],
    },
    find: each(deployedConfigs, ({ config }) => {
      if (!config?.instance_group.some(({ kind }) => kind === "KIND_GPU")) return undefined;
      const sizes = config.model_warmup.map(({ batch_size }) => batch_size);
      const missing = [1, config.max_batch_size].filter((size) => !sizes.includes(size));
      return missing.length === 0 || config.max_batch_size === 0
        ? undefined
        : `model_warmup should have batches of ${missing.join(" and ")}, got ${sizes.join(", ") || "none"}`;
    }),
  }),
  rule({
    id: "engine-cache",
    severity: "error",
    title: "TensorRT engines are stored on a volume.",
    rationale:
      "Compiling an engine takes minutes. Without a volume, engines are recompiled after every deployment.",
    inputs:
      "`trt_engine_cache_enable` and `trt_engine_cache_path` of TensorRT configurations, and the volumes of the Triton that reads them.",
    fix: `enable the cache in the configuration, and mount a volume at ${engineCacheMount}`,
    example: {
      stack: "single-gpu",
      message:
        "a volume must be mounted at the engine cache, /engine-cache/openclip_vit_b32_trt, got none",
      edits: [{ path: containerPath("triton-trt/container", "volumes", 2), failing: undefined }],
    },
    *find(change) {
      for (const { address, config, container } of deployedConfigs(change)) {
        const parameters = tensorrtOf(config);
        if (parameters === undefined || container === undefined) continue;
        const path = parameters.trt_engine_cache_path ?? "";
        if (!/^(true|1)$/i.test(parameters.trt_engine_cache_enable ?? "")) {
          yield { address, message: "trt_engine_cache_enable must be true for TensorRT" };
          continue;
        }
        const mounted = volumesOf(container.values).some(
          (volume) => volume.path !== "" && `${path}/`.startsWith(`${volume.path}/`),
        );
        if (mounted) continue;
        yield {
          address: container.address,
          message: `a volume must be mounted at the engine cache, ${path}, got none`,
        };
      }
    },
  }),
  rule({
    id: "engine-cache-gpu",
    severity: "warning",
    title: "Engine volumes are named after their GPU architecture.",
    rationale:
      "An engine is built for one compute capability. If the volume keeps its name when the GPU changes, TensorRT finds unusable or slow engines.",
    inputs:
      "`sm<compute capability>` in the name of the volume at the engine cache, compared with the GPU of the environment.",
    fix: "name the volume after the GPU architecture, as in constructs/docker/engine-cache.ts",
    example: {
      stack: "single-gpu",
      message:
        "the engine volume should be named after sm89 (NVIDIA GeForce RTX 4080), got 'single-gpu-triton-trt-engines-sm75-26.07-py3'",
      edits: [
        {
          path: ["resource", "docker_volume", "triton-trt/engine-cache/volume", "name"],
          failingText: "-sm75-",
          passingText: "-sm89-",
        },
      ],
    },
    *find(change) {
      const gpu = gpuOf(change);
      if (gpu === undefined) return;
      const architecture = `sm${gpu.computeCapability.replace(".", "")}`;
      const volumes = resourcesOf(change, "docker_volume");
      for (const { values } of tritonContainers(change)) {
        const mount = volumesOf(values).find(({ path }) => path === engineCacheMount);
        const volume = volumes.find((it) => refersTo(mount?.name, it, text(it.after?.name)));
        const named = /(^|-)(sm\d+)(-|$)/.exec(text(volume?.after?.name) ?? "")?.[2];
        if (volume === undefined || named === undefined || named === architecture) continue;
        yield {
          address: volume.address,
          message: `the engine volume should be named after ${architecture} (${gpu.label}), got '${text(volume.after?.name)}'`,
        };
      }
    },
  }),
  rule({
    id: "engine-cache-pods",
    severity: "warning",
    title: "Pods with TensorRT store their engines on a volume.",
    rationale:
      "Without a volume, each new pod compiles engines for minutes before it is ready, so scale-up comes too late for a load peak.",
    inputs: "`triton.backend` and `triton.engineCache` in the chart values.",
    fix: "set triton.engineCache.enabled to true",
    example: {
      stack: "k8s-gpu",
      settings: tensorrtSettings,
      message:
        "triton.engineCache.enabled should be true: each new pod compiles the model before it is ready",
      edits: [
        {
          path: chartValuesPath,
          failingText: '"engineCache": {\n      "enabled": false',
          passingText: '"engineCache": {\n      "enabled": true',
        },
      ],
    },
    find: each(releasesOf, ({ values }) => {
      const triton = block(values.triton);
      const compiles = triton?.backend === "tensorrt" && (number(triton.gpus) ?? 0) > 0;
      return triton?.enabled === true && compiles && at(triton.engineCache, "enabled") !== true
        ? "triton.engineCache.enabled should be true: each new pod compiles the model before it is ready"
        : undefined;
    }),
  }),
  rule({
    id: "model-fits-gpu",
    severity: "error",
    title: "The models fit into GPU memory.",
    rationale:
      "A model that does not fit fails to load, or causes out-of-memory errors in another model under load.",
    inputs:
      "Execution instances of every model configuration, ONNX Runtime in the embed server, and GPU memory in the output `environment`, with the estimate of the synth-time check.",
    fix: "use a GPU with more memory, fewer instances (instancesPerGpu), modelControl: none (no memory for a reload), or distribute the services over several GPUs",
    example: {
      stack: "single-gpu",
      message:
        "gpu must have room for the models: GPU 0 has 16376 MiB, 14738 usable, and they need 51360 (embed 1104 + triton-onnx 24192 + a reload of triton-onnx 23680 + triton-trt 936 + a reload of triton-trt 424 + a TensorRT build 1024): serve fewer models or towers, disable a service, or use a GPU with more memory",
      edits: [
        {
          path: configText("triton-onnx"),
          failingText: "count: 40",
          passingText: "count: 1",
        },
      ],
    },
    *find(change) {
      const environment = environmentOf(change);
      if (environment?.gpu === undefined) return;
      const uses = new Map<string, VramUse[]>();
      const firstTritons = new Map<string, string>();
      for (const it of serviceContainers(change)) {
        const visible = visibleGpus(change, it);
        const deployed = configOf(change, it);
        const instances =
          it.kind === "embed" || it.kind === "baseline"
            ? 1
            : deployed?.config && executionInstances(deployed.config, visible.length);
        if (instances === undefined || it.kind === "other") continue;
        for (const gpu of visible) {
          const gpuUses = uses.get(gpu) ?? [];
          gpuUses.push({
            service: it.service?.name ?? it.address,
            backend: vramBackend(it, tensorrtOf(deployed?.config) !== undefined),
            instances: Math.ceil(instances / visible.length),
            models: servedSpecs(environment, it.service),
            reloads: option(it.command, "model-control-mode") === "explicit",
            decodes: it.service?.jpegKind !== undefined,
          });
          uses.set(gpu, gpuUses);
          if (it.kind === "triton" && !firstTritons.has(gpu)) firstTritons.set(gpu, it.address);
        }
      }
      for (const [gpu, gpuUses] of uses) {
        for (const finding of vramFindings(gpu, gpuUses, environment.gpu.vramMiB)) {
          const address = firstTritons.get(gpu);
          yield { ...(address !== undefined && { address }), message: renderFinding(finding) };
        }
      }
    },
  }),
  rule({
    id: "model-licence",
    severity: "warning",
    title: "The licences of the models have no restriction of use.",
    rationale:
      "Some weights may be used for research only, or the model's author advises against production. Whether that covers the deployment is for people to decide.",
    inputs: "`licence.restriction` of every model in the output `environment`.",
    fix: "check that the restriction permits the use and waive the rule, or serve another model",
    example: {
      stack: "single-gpu",
      message:
        "openclip-vit-b32: the licence of the weights (MIT) restricts their use: research only",
      edits: [
        {
          path: [...modelInOutput, "licence", "restriction"],
          failing: "research only",
        },
      ],
    },
    *find(change) {
      for (const { name, licence } of environmentOf(change)?.models ?? []) {
        const { weights, restriction } = licence;
        if (restriction === undefined) continue;
        yield {
          message: `${name}: the licence of the weights (${weights}) restricts their use: ${restriction}`,
        };
      }
    },
  }),
  rule({
    id: "memory-holds-model",
    severity: "error",
    title: "Memory limits exceed the size of the model's weights.",
    rationale:
      "The kernel kills a process that exceeds its memory limit: with a limit below the size of the weights, every start fails while loading the model, in an endless loop.",
    inputs: `Memory limits of the embed server and Triton, on a host, in pods and in the chart values, compared with the weights of all models (a quarter of FP32 for int8). Determine additional memory with a load test. Gateways have no model.`,
    fix: "raise limits.memory (resources.limits.memoryMiB; memory of a container on a host); the settings' defaults are tested",
    example: {
      stack: "kind-local",
      message:
        "limits.memory of clipstack-embed must be more than 336 MiB, the weights of the models, got 64Mi",
      edits: [
        {
          path: podContainerPath("resources"),
          failing: { requests: { cpu: "250m", memory: "64Mi" }, limits: { memory: "64Mi" } },
          passing: { requests: { cpu: "250m", memory: "1Gi" }, limits: { memory: "1536Mi" } },
        },
      ],
    },
    *find(change) {
      for (const { address, kind, values, env } of serviceContainers(change)) {
        const limit = number(values.memory) ?? 0;
        const weights = hostWeightsMiB(change, kind, (name) => env.get(name));
        // 0: no limit
        if (weights === undefined || limit === 0) continue;
        for (const finding of memoryFindings("memory", limit, weights)) {
          yield { address, message: renderFinding(finding) };
        }
      }
      for (const { address, name, kind, pod, containers } of workloadsOf(change)) {
        // the first container is the server
        const [server] = containers;
        const limit = memoryMiB(server?.limits.memory);
        const weights = hostWeightsMiB(change, kind, variablesOf(change, { address, kind, pod }));
        if (limit === undefined || weights === undefined) continue;
        const got = String(server?.limits.memory);
        for (const finding of memoryFindings(`limits.memory of ${name}`, limit, weights, got)) {
          yield { address, message: renderFinding(finding) };
        }
      }
    },
  }),
];
