import { memoryFindings } from "../../constructs/checks/memory.ts";
import { type VramUse, vramFindings, weightsOfMiB } from "../../constructs/checks/vram.ts";
import { engineCacheMount, executionInstances } from "../../contract/model-config.ts";
import { configOf, deployedConfigs, problemsOf, tensorrtOf } from "../facts/model-configs.ts";
import {
  option,
  type ServiceContainer,
  serviceContainers,
  tritonContainers,
  visibleGpus,
  volumesOf,
} from "../facts/service-containers.ts";
import { at, block, blocks, memoryMiB, number, refersTo, text } from "../facts/values.ts";
import {
  environmentOf,
  gpuOf,
  podContainers,
  releasesOf,
  resourcesOf,
  servedSpecs,
  type Workload,
  workloadsOf,
} from "../facts/workloads.ts";
import type { StackChange } from "../input/change.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

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
    fix: "correct the field; configurations are rendered from the settings, so check for an override",
    find: each(deployedConfigs, (deployed, change) => [
      ...(deployed.problem === undefined ? [] : [deployed.problem]),
      ...problemsOf(deployed, change),
    ]),
  }),
  rule({
    id: "queue-delay-goal",
    severity: "warning",
    fix: "lower maxQueueDelayMicroseconds, or raise review.p99GoalMilliseconds",
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
    fix: "add warm-ups for batch 1 and max_batch_size",
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
    fix: `enable the cache in the configuration, and mount a volume at ${engineCacheMount}`,
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
    fix: "name the volume after the GPU architecture, as in constructs/docker/engine-cache.ts",
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
    fix: "set triton.engineCache.enabled to true",
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
    fix: "use a GPU with more memory, fewer instances (instancesPerGpu), modelControl: none (no memory for a reload), or distribute the services over several GPUs",
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
          yield { ...(address !== undefined && { address }), message: finding };
        }
      }
    },
  }),
  rule({
    id: "model-licence",
    severity: "warning",
    fix: "check that the restriction permits the use and waive the rule, or serve another model",
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
    fix: "raise limits.memory (resources.limits.memoryMiB; memory of a container on a host); the settings' defaults are tested",
    *find(change) {
      for (const { address, kind, values, env } of serviceContainers(change)) {
        const limit = number(values.memory) ?? 0;
        const weights = hostWeightsMiB(change, kind, (name) => env.get(name));
        // 0: no limit
        if (weights === undefined || limit === 0) continue;
        for (const finding of memoryFindings("memory", limit, weights)) {
          yield { address, message: finding };
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
          yield { address, message: finding };
        }
      }
    },
  }),
];
