import { type VramUse, vram, vramFindings } from "../../constructs/checks/vram.ts";
import { engineCacheMount, executionInstances } from "../../contract/model-config.ts";
import { openclipVitB32 } from "../../contract/model-signature.ts";
import { tritonPorts } from "../../contract/ports.ts";
import { elementCount } from "../../contract/tensor.ts";
import type { StackChange } from "../input/change.ts";
import {
  environmentOf,
  gpuOf,
  option,
  podContainers,
  releasesOf,
  resourcesOf,
  type ServiceContainer,
  serviceContainers,
  visibleGpus,
  volumesOf,
  type Workload,
  workloadsOf,
} from "./facts.ts";
import { configOf, deployedConfigs, problemsOf, tensorrtOf } from "./model-configs.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import {
  at,
  block,
  blocks,
  isMissing,
  memoryMiB,
  number,
  optionText,
  refersTo,
  text,
  texts,
} from "./values.ts";

const onnx = "triton-onnx/container";
const container = (construct: string, ...path: readonly (string | number)[]) =>
  ["resource", "docker_container", construct, ...path] as const;
const configText = (service: string) =>
  container(`${service}/configuration/apply/container`, "upload", 0, "content");

const podResources = [
  ...["resource", "kubernetes_deployment_v1", "embed/deployment"],
  ...["spec", "template", "spec", "container", 0, "resources"],
] as const;

const tensorrtSettings = [
  "triton:",
  "  backend: tensorrt",
  `  image: registry.example/clipstack/triton@sha256:${"0123456789abcdef".repeat(4)}`,
  "  engineCache: { enabled: true }",
].join("\n");

/** Shared memory that a Triton needs, in MiB: NVIDIA's examples begin with 256. */
const leastSharedMemoryMiB = 256;

/** A request with the most images, as FP32 tensors in binary. */
const requestBytes = openclipVitB32.maxBatchSize * elementCount(openclipVitB32.inputs[0].dims) * 4;

function tritons(change: StackChange): readonly ServiceContainer[] {
  return serviceContainers(change).filter(({ kind }) => kind === "triton");
}

/** Host memory that the weights take alone; absent where there are none, or nobody can say it. */
function weightsMiB(
  kind: ServiceContainer["kind"],
  variable: (name: string) => string | undefined,
): number | undefined {
  if (kind === "other" || (kind === "embed" && variable("BACKEND") === "triton")) return undefined;
  const isInt8 = variable("MODEL_PRECISION") === "int8";
  return isInt8 ? Math.floor(vram.weightsFp32MiB / 4) : vram.weightsFp32MiB;
}

function tooLittle(what: string, least: number, given: string): string {
  return `${what} must be more than ${least} MiB, the weights of the model, got ${given}`;
}

function mayHaveGpus({ values, env }: ServiceContainer): boolean {
  const named = env.has("NVIDIA_VISIBLE_DEVICES") && env.get("NVIDIA_VISIBLE_DEVICES") !== "";
  return named || Boolean(values.gpus) || values.runtime === "nvidia";
}

/** GPUs of a host that a service asks for; absent where only Terraform or the image knows. */
function gpusUsed(change: StackChange): ReadonlySet<string> | undefined {
  const used = new Set<string>();
  for (const container of serviceContainers(change)) {
    const isNamed = container.env.get("NVIDIA_VISIBLE_DEVICES") !== undefined;
    if (!isNamed && mayHaveGpus(container)) return undefined;
    for (const gpu of visibleGpus(change, container)) used.add(gpu);
  }
  return used.size === 0 ? undefined : used;
}

/** Environment variables of the server of a pod. */
function variablesOf(
  change: StackChange,
  { address, kind, pod }: Pick<Workload, "address" | "kind" | "pod">,
): (name: string) => string | undefined {
  const release = releasesOf(change).find(({ resource }) => resource.address === address)?.values;
  const component = block(release?.[kind]);
  const given = blocks(component?.extraEnv ?? podContainers(pod)[0]?.env);
  return (name) =>
    name === "BACKEND" && component !== undefined
      ? text(component.backend)
      : text(given.find((it) => it.name === name)?.value);
}

/** Triton, its model configurations, and the GPUs that they run on. */
export const tritonRules: readonly ReviewRule[] = [
  rule({
    id: "triton-shared-memory",
    severity: "warning",
    title: `A Triton has at least ${leastSharedMemoryMiB} MiB of shared memory.`,
    why: "Docker gives a container 64 MiB of `/dev/shm`. Python models and NCCL exchange tensors there: when it is full, they fail with an error that names neither.",
    looksAt: "`shm_size` of every Triton, and `triton.sharedMemory` in the values of the chart.",
    fix: "set shm_size to 1024, as NVIDIA advises",
    example: {
      stack: "single-gpu",
      says: "shm_size should be at least 256 MiB, got 64",
      edits: [{ at: container(onnx, "shm_size"), failing: 64, passing: 1024 }],
    },
    find: each(tritons, ({ resource, values }) => {
      const given = number(values.shm_size);
      const isKnown = given !== undefined || isMissing(resource, "shm_size");
      return isKnown && (given ?? 0) < leastSharedMemoryMiB
        ? `shm_size should be at least ${leastSharedMemoryMiB} MiB, got ${given ?? "nothing"}`
        : undefined;
    }),
  }),
  rule({
    id: "triton-strict-start",
    severity: "error",
    title: "A Triton whose model does not load stops, and says so.",
    why: "With other options Triton guesses what a configuration leaves out, starts without the model, or calls itself ready before it is.",
    looksAt:
      "`--strict-readiness=true`, `--exit-on-error=true` and `--disable-auto-complete-config` in the command of every Triton.",
    fix: "add the option to the command",
    example: {
      stack: "single-gpu",
      says: "--exit-on-error must be true, got 'false'",
      edits: [
        {
          at: container(onnx, "command", 6),
          failing: "--exit-on-error=false",
          passing: "--exit-on-error=true",
        },
      ],
    },
    find: each(tritons, ({ command }) => {
      if (command.length === 0) return undefined;
      const loose = ["strict-readiness", "exit-on-error"].flatMap((name) => {
        // both are Triton's own default
        const given = option(command, name) ?? "true";
        return given === true || /^(true|1|on|yes)$/i.test(given)
          ? []
          : `--${name} must be true, got '${optionText(name, given)}'`;
      });
      return option(command, "disable-auto-complete-config") === undefined
        ? [
            ...loose,
            "--disable-auto-complete-config must be given: Triton would guess what the configuration leaves out",
          ]
        : loose;
    }),
  }),
  rule({
    id: "triton-request-size",
    severity: "warning",
    title: "A Triton takes a request of the largest batch as text.",
    why: "Triton refuses a body of more than 64 MiB. Thirty-two images are 19 MB in binary, and about five times that as JSON.",
    looksAt: "`--http-max-input-size` of every Triton.",
    fix: "set --http-max-input-size to 134217728",
    example: {
      stack: "single-gpu",
      says: "--http-max-input-size should be at least 96337920 bytes (32 images as JSON), got 1048576",
      edits: [
        {
          at: container(onnx, "command", 3),
          failing: "--http-max-input-size=1048576",
          passing: "--http-max-input-size=134217728",
        },
      ],
    },
    find: each(tritons, ({ command }) => {
      // Triton's own default: 64 MiB
      const given = number(option(command, "http-max-input-size")) ?? 67_108_864;
      // a number as text takes up to five times its four bytes
      const least = 5 * requestBytes;
      return command.length === 0 || given >= least
        ? undefined
        : `--http-max-input-size should be at least ${least} bytes (${openclipVitB32.maxBatchSize} images as JSON), got ${given}`;
    }),
  }),
  rule({
    id: "model-config-valid",
    severity: "error",
    title: "A model configuration is one that Triton and its backend understand.",
    why: "Triton refuses a field that it does not know, after the old container is gone. Worse is what it accepts: CUDA graphs that ONNX Runtime ignores, a TensorRT parameter with a slip of the pen, a preferred batch above the maximum.",
    looksAt:
      "The text of every `config.pbtxt` in uploads and in the values of the chart, against `model_config.proto`, and the settings of the ONNX Runtime backend.",
    fix: "correct the field; configurations are rendered from the settings, so look for an override",
    example: {
      stack: "single-gpu",
      says: "openclip_vit_b32: dynamic_batching.preferred_batch_size must be 1 to max_batch_size (32), got 64",
      edits: [
        {
          at: configText("triton-onnx"),
          failingText: "preferred_batch_size: [8, 16, 64]",
          passingText: "preferred_batch_size: [8, 16, 32]",
        },
      ],
    },
    find: each(deployedConfigs, ({ config, problem }) => [
      ...(problem === undefined ? [] : [problem]),
      ...(config === undefined ? [] : problemsOf(config)),
    ]),
  }),
  rule({
    id: "queue-delay-goal",
    severity: "warning",
    title: "Triton does not hold a request back for longer than half of the latency goal.",
    why: "The queue delay is paid by every request that finds the batch not full: with little load it is latency and nothing else.",
    looksAt:
      "`max_queue_delay_microseconds` of every model configuration, against `review.p99GoalMilliseconds` in the settings. Without a goal nothing is found.",
    fix: "lower maxQueueDelayMicroseconds, or raise review.p99GoalMilliseconds",
    example: {
      stack: "single-gpu",
      says: "max_queue_delay_microseconds should be at most 25000, half of the goal of 50 ms (p99), got 40000",
      goals: { p99Milliseconds: 50 },
      edits: [
        {
          at: configText("triton-onnx"),
          failingText: "max_queue_delay_microseconds: 40000",
          passingText: "max_queue_delay_microseconds: 5000",
        },
      ],
    },
    find: each(deployedConfigs, ({ config }, { goals }) => {
      const goal = goals?.p99Milliseconds;
      if (goal === undefined) return undefined;
      const delay = config?.dynamic_batching?.max_queue_delay_microseconds ?? 0;
      return delay <= (goal * 1000) / 2
        ? undefined
        : `max_queue_delay_microseconds should be at most ${(goal * 1000) / 2}, half of the goal of ${goal} ms (p99), got ${delay}`;
    }),
  }),
  rule({
    id: "model-warm-up",
    severity: "warning",
    title: "A model on a GPU is warmed up with the smallest and the largest batch.",
    why: "The first batch of each size pays for kernels and memory: without a warm-up the first users wait for them, with TensorRT for minutes.",
    looksAt: "`model_warmup` of model configurations with an instance group on GPUs.",
    fix: "add warm-ups for batch 1 and max_batch_size",
    example: {
      stack: "single-gpu",
      says: "model_warmup should have batches of 32, got 1, 4, 8, 16, 16",
      edits: [
        {
          at: configText("triton-trt"),
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
    title: "TensorRT's engines are on a volume that outlives the container.",
    why: "An engine takes minutes to compile. In the container it goes with it: every deployment, crash and reboot compiles anew.",
    looksAt:
      "`trt_engine_cache_enable` and `trt_engine_cache_path` of TensorRT configurations, and the volumes of the Triton that reads them.",
    fix: `enable the cache in the configuration, and mount a volume at ${engineCacheMount}`,
    example: {
      stack: "single-gpu",
      says: "a volume must be mounted where the engines are, at /engine-cache/openclip_vit_b32_trt, got none",
      edits: [{ at: container("triton-trt/container", "volumes", 2), failing: undefined }],
    },
    *find(change) {
      for (const { address, config, container } of deployedConfigs(change)) {
        const parameters = tensorrtOf(config);
        if (parameters === undefined || container === undefined) continue;
        const path = parameters.trt_engine_cache_path ?? "";
        if (!/^(true|1)$/i.test(parameters.trt_engine_cache_enable ?? "")) {
          yield { address, what: "trt_engine_cache_enable must be true for TensorRT" };
          continue;
        }
        const mounted = volumesOf(container.values).some(
          (volume) => volume.path !== "" && `${path}/`.startsWith(`${volume.path}/`),
        );
        if (mounted) continue;
        yield {
          address: container.address,
          what: `a volume must be mounted where the engines are, at ${path}, got none`,
        };
      }
    },
  }),
  rule({
    id: "engine-cache-gpu",
    severity: "warning",
    title: "A volume of engines is named for the GPU that runs them.",
    why: "An engine runs on the compute capability that it was built for. On a volume that keeps its name when the GPU changes, TensorRT finds engines that it cannot use, or that are slower than they should be.",
    looksAt:
      "`sm<compute capability>` in the name of the volume at the engine cache, against the GPU of the environment.",
    fix: "name the volume for the GPU, as constructs/docker/engine-cache.ts does",
    example: {
      stack: "single-gpu",
      says: "the volume of the engines should be named for sm89 (NVIDIA GeForce RTX 4080), got 'single-gpu-triton-trt-engines-sm75-26.07-py3'",
      edits: [
        {
          at: ["resource", "docker_volume", "triton-trt/engine-cache/volume", "name"],
          failingText: "-sm75-",
          passingText: "-sm89-",
        },
      ],
    },
    *find(change) {
      const gpu = gpuOf(change);
      if (gpu === undefined) return;
      const wanted = `sm${gpu.computeCapability.replace(".", "")}`;
      const volumes = resourcesOf(change, "docker_volume");
      for (const { values } of tritons(change)) {
        const mount = volumesOf(values).find(({ path }) => path === engineCacheMount);
        const volume = volumes.find((it) => refersTo(mount?.name, it, text(it.after?.name)));
        const named = /(^|-)(sm\d+)(-|$)/.exec(text(volume?.after?.name) ?? "")?.[2];
        if (volume === undefined || named === undefined || named === wanted) continue;
        yield {
          address: volume.address,
          what: `the volume of the engines should be named for ${wanted} (${gpu.label}), got '${text(volume.after?.name)}'`,
        };
      }
    },
  }),
  rule({
    id: "model-fits-gpu",
    severity: "error",
    title: "What runs on a GPU fits into its memory.",
    why: "A model that does not fit fails to load, or takes down the one beside it when both are busy.",
    looksAt:
      "The execution instances of every model configuration, ONNX Runtime in the embed server, and the memory of the GPU in the output `environment`. The estimate is the one of the synth-time check.",
    fix: "take a GPU with more memory, fewer instances (instancesPerGpu), modelControl: none (which needs no room for a reload), or spread the services over GPUs",
    example: {
      stack: "single-gpu",
      says: "gpu must have room for the models: GPU 0 has 16376 MiB, 14738 usable, and they need 51441 (embed 1105 + triton-onnx 24232 + a reload of triton-onnx 23720 + triton-trt 936 + a reload of triton-trt 424 + a TensorRT build 1024)",
      edits: [
        {
          at: configText("triton-onnx"),
          failingText: "count: 40",
          passingText: "count: 1",
        },
      ],
    },
    *find(change) {
      const environment = environmentOf(change);
      if (environment?.gpu === undefined) return;
      const uses = new Map<string, VramUse[]>();
      const first = new Map<string, string>();
      for (const it of serviceContainers(change)) {
        const visible = visibleGpus(change, it);
        const deployed = configOf(change, it);
        const instances =
          it.kind === "embed"
            ? 1
            : deployed?.config && executionInstances(deployed.config, visible.length);
        if (instances === undefined || it.kind === "other") continue;
        for (const gpu of visible) {
          const of = uses.get(gpu) ?? [];
          of.push({
            service: it.service?.name ?? it.address,
            backend: tensorrtOf(deployed?.config) === undefined ? "onnxruntime" : "tensorrt",
            instances: Math.ceil(instances / visible.length),
            reloads: option(it.command, "model-control-mode") === "explicit",
          });
          uses.set(gpu, of);
          if (it.kind === "triton" && !first.has(gpu)) first.set(gpu, it.address);
        }
      }
      for (const [gpu, of] of uses) {
        for (const what of vramFindings(gpu, of, environment.gpu.vramMiB)) {
          const address = first.get(gpu);
          yield { ...(address !== undefined && { address }), what };
        }
      }
    },
  }),
  rule({
    id: "memory-holds-model",
    severity: "error",
    title: "A server may take more memory than the weights of its model.",
    why: "The kernel kills a process at its limit of memory: with one below the size of the weights each start ends while the model loads, and the next one begins.",
    looksAt: `The limit of memory of the embed server and of Triton, on a host, in pods and in the values of the chart, against the weights alone (${vram.weightsFp32MiB} MiB, of int8 a quarter). What they need besides is for a load test. A gateway has no model.`,
    fix: "raise limits.memory (resources.limits.memoryMiB; memory of a container on a host): the defaults of the settings are tested",
    example: {
      stack: "kind-local",
      says: "limits.memory of clipstack-embed must be more than 337 MiB, the weights of the model, got 64Mi",
      edits: [
        {
          at: podResources,
          failing: { requests: { cpu: "250m", memory: "64Mi" }, limits: { memory: "64Mi" } },
          passing: { requests: { cpu: "250m", memory: "1Gi" }, limits: { memory: "1536Mi" } },
        },
      ],
    },
    *find(change) {
      for (const { address, kind, values, env } of serviceContainers(change)) {
        const limit = number(values.memory) ?? 0;
        const least = weightsMiB(kind, (name) => env.get(name));
        // 0: Docker sets no limit
        if (least === undefined || limit === 0 || limit > least) continue;
        yield { address, what: tooLittle("memory", least, `${limit} MiB`) };
      }
      for (const { address, name, kind, pod, containers } of workloadsOf(change)) {
        // the first is the server, as everywhere here; of the chart the values say what it is
        const [server] = containers;
        const limit = memoryMiB(server?.limits.memory);
        const least = weightsMiB(kind, variablesOf(change, { address, kind, pod }));
        if (limit === undefined || least === undefined || limit > least) continue;
        const what = tooLittle(`limits.memory of ${name}`, least, String(server?.limits.memory));
        yield { address, what };
      }
    },
  }),
  rule({
    id: "gpu-on-host",
    severity: "error",
    title: "A container asks for GPUs that the host has.",
    why: "Docker refuses to start a container that names a GPU which is not there, after the old one is gone.",
    looksAt:
      "`gpus` and `NVIDIA_VISIBLE_DEVICES` of every container, against the number of GPUs in the output `environment`.",
    fix: "correct the list of gpus of the service, or host.count",
    example: {
      stack: "single-gpu",
      says: "gpus must be 0 to 0, the host has 1, got 3",
      edits: [{ at: container(onnx, "gpus"), failing: "device=3", passing: "device=0" }],
    },
    *find(change) {
      const count = environmentOf(change)?.gpu?.count;
      if (count === undefined) return;
      for (const { address, values, env } of serviceContainers(change)) {
        const devices = [
          (text(values.gpus) ?? "").replace(/^device=/, ""),
          env.get("NVIDIA_VISIBLE_DEVICES") ?? "",
        ].flatMap((names) => names.split(","));
        const absent = new Set(devices.filter((it) => /^\d+$/.test(it) && Number(it) >= count));
        for (const device of absent) {
          yield {
            address,
            what: `gpus must be 0 to ${count - 1}, the host has ${count}, got ${device}`,
          };
        }
      }
    },
  }),
  rule({
    id: "gpu-request-agrees",
    severity: "error",
    title: "A container sees the GPUs that it asks for.",
    why: "Docker gives a container the GPUs of `gpus`, NVIDIA's runtime those of its variable. Where they differ, one GPU has two services and another none.",
    looksAt: "`gpus` and `NVIDIA_VISIBLE_DEVICES` of every container that has both.",
    fix: "set both to the same GPUs, as constructs/docker/gpu-request.ts does",
    example: {
      stack: "multi-gpu-4x",
      says: "NVIDIA_VISIBLE_DEVICES must be the GPUs of gpus ('0'), got '1'",
      settings: "topology: per-gpu",
      edits: [
        {
          at: container("triton-1/container", "gpus"),
          failing: "device=0",
          passing: "device=1",
        },
      ],
    },
    find: each(serviceContainers, ({ values, env }) => {
      const asked = text(values.gpus)?.replace(/^device=/, "");
      const seen = env.get("NVIDIA_VISIBLE_DEVICES");
      return asked === undefined || asked === "" || seen === undefined || asked === seen
        ? undefined
        : `NVIDIA_VISIBLE_DEVICES must be the GPUs of gpus ('${asked}'), got '${seen}'`;
    }),
  }),
  rule({
    id: "gpu-named-one-way",
    severity: "error",
    title: "The GPUs of a host are named all by index or all by UUID.",
    why: "With both, nobody can say which of them are the same: two services share a GPU, and the sum of their memory is not known.",
    looksAt: "`NVIDIA_VISIBLE_DEVICES` of all containers of the stack.",
    fix: "name the gpus of all services the same way; 'nvidia-smi -L' has the UUIDs",
    example: {
      stack: "single-gpu",
      says: "gpus must be named all by index or all by UUID, got 0 (docker_container.embed_container_3CD7E964) and GPU-8a56a4bc-184b-a047-2620-be16fdbd5b46",
      edits: [
        {
          at: container(onnx, "env", 1),
          failing: "NVIDIA_VISIBLE_DEVICES=GPU-8a56a4bc-184b-a047-2620-be16fdbd5b46",
          passing: "NVIDIA_VISIBLE_DEVICES=0",
        },
      ],
    },
    *find(change) {
      const named = serviceContainers(change).flatMap(({ address, env }) =>
        (env.get("NVIDIA_VISIBLE_DEVICES") ?? "")
          .split(",")
          .filter((device) => /^(\d+|GPU-.*)$/.test(device))
          .map((device) => ({ address, device })),
      );
      const index = named.find(({ device }) => /^\d/.test(device));
      const uuid = named.find(({ device }) => !/^\d/.test(device));
      if (index === undefined || uuid === undefined) return;
      yield {
        address: uuid.address,
        what: `gpus must be named all by index or all by UUID, got ${index.device} (${index.address}) and ${uuid.device}`,
      };
    },
  }),
  rule({
    id: "gateway-upstream",
    severity: "error",
    title: "A gateway asks Tritons that are there.",
    why: "The embed server as a gateway computes nothing itself: with an upstream that does not exist it starts, and is never ready.",
    looksAt:
      "`TRITON_GRPC_URLS` of an embed server on a host, against the names and the gRPC port of the containers of the stack; `embed.backend` in the values of the chart.",
    fix: "set embed.upstream to a Triton that is enabled",
    example: {
      stack: "single-gpu",
      settings: "embed: { backend: triton }",
      says: "TRITON_GRPC_URLS must name Tritons of the stack at port 8001, got 'single-gpu-triton:8001'",
      edits: [
        {
          at: container("embed/container", "env", 5),
          failingText: "single-gpu-triton:8001",
          passingText: "single-gpu-triton-onnx:8001",
        },
      ],
    },
    *find(change) {
      const containers = serviceContainers(change);
      const names = containers.map(({ values }) => text(values.name));
      for (const { address, env, values } of containers) {
        const urls = env.get("TRITON_GRPC_URLS")?.split(",") ?? [];
        // on the network of the host, or another one, others may answer
        const own = texts(blocks(values.networks_advanced).map(({ name }) => name));
        if (values.network_mode === "host" || own.length === 0) continue;
        for (const url of urls) {
          const [host, port] = url.split(":");
          if (names.includes(host) && Number(port) === tritonPorts.grpc) continue;
          yield {
            address,
            what: `TRITON_GRPC_URLS must name Tritons of the stack at port ${tritonPorts.grpc}, got '${url}'`,
          };
        }
      }
      for (const { resource, values } of releasesOf(change)) {
        const asks = at(values, "embed", "engine") === "triton";
        if (!asks || at(values, "triton", "enabled") === true) continue;
        yield {
          address: resource.address,
          what: "triton.enabled must be true when embed.backend is triton, got false",
        };
      }
    },
  }),
  rule({
    id: "engine-cache-pods",
    severity: "warning",
    title: "Pods that run TensorRT keep their engines on a volume.",
    why: "Without one, each new pod compiles for minutes before it answers: the autoscaler adds pods that come after the peak.",
    looksAt: "`triton.backend` and `triton.engineCache` in the values of the chart.",
    fix: "set triton.engineCache.enabled to true",
    example: {
      stack: "k8s-gpu",
      settings: tensorrtSettings,
      says: "triton.engineCache.enabled should be true: each new pod compiles the model before it answers",
      edits: [
        {
          at: ["resource", "helm_release", "inference/chart/release", "values", 0],
          failingText: '"engineCache": {\n      "enabled": false',
          passingText: '"engineCache": {\n      "enabled": true',
        },
      ],
    },
    *find(change) {
      for (const { resource, values } of releasesOf(change)) {
        const triton = block(values.triton);
        const compiles = triton?.backend === "tensorrt" && (number(triton.gpus) ?? 0) > 0;
        if (triton?.enabled !== true || !compiles) continue;
        if (at(triton.engineCache, "enabled") === true) continue;
        yield {
          address: resource.address,
          what: "triton.engineCache.enabled should be true: each new pod compiles the model before it answers",
        };
      }
    },
  }),
  rule({
    id: "gpu-asked-for",
    severity: "warning",
    title: "An environment uses its GPUs.",
    why: "GPUs that nothing asks for are paid by the hour all the same.",
    looksAt:
      "`gpus`, the runtime and `NVIDIA_VISIBLE_DEVICES` of containers, and `triton.gpus` and `embed.accelerator` in the values of the chart, where the output `environment` has GPUs. In a cluster others may use those that are left, on a host nobody does.",
    fix: "ask for the GPUs in a service (gpus), lower host.count, or set accelerator to cpu",
    example: {
      stack: "k8s-gpu",
      says: "4 GPUs (l4) are paid for, and no service asks for one",
      edits: [
        {
          at: ["resource", "helm_release", "inference/chart/release", "values", 0],
          failingText: '"gpus": 0',
          passingText: '"gpus": 1',
        },
      ],
    },
    *find(change) {
      const gpu = environmentOf(change)?.gpu;
      if (gpu === undefined) return;
      const hosts = serviceContainers(change);
      const charts = releasesOf(change);
      const asked =
        hosts.some(mayHaveGpus) ||
        charts.some(
          ({ values }) =>
            (number(at(values, "triton", "gpus")) ?? 0) > 0 ||
            at(values, "embed", "accelerator") === "gpu",
        );
      if (asked || hosts.length + charts.length === 0) {
        const idle = gpu.count - (gpusUsed(change)?.size ?? gpu.count);
        if (idle <= 0) return;
        const [are, them] = idle === 1 ? ["is", "it"] : ["are", "them"];
        yield {
          what: `${idle} of ${gpu.count} GPUs (${gpu.name}) ${are} paid for, and no service asks for ${them}`,
        };
        return;
      }
      const address = [...hosts, ...charts.map(({ resource }) => resource)][0]?.address ?? "";
      yield {
        address,
        what: `${gpu.count} GPUs (${gpu.name}) are paid for, and no service asks for one`,
      };
    },
  }),
];
