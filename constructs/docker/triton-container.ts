import type { ContainerVolumes } from "#providers/docker/lib/container/index.js";
import type { TritonServerKind } from "../../contract/environment.ts";
import { deployedConfigName, engineCacheMount } from "../../contract/model-config.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import { tritonPorts } from "../../contract/ports.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import {
  modelControlKeyVariable,
  renderTritonCommand,
  restrictControl,
  tracingFlags,
} from "../../contract/triton-flags.ts";
import { tritonLauncher } from "../../contract/triton-launcher.ts";
import { nodeOptions } from "../checks/container-limits.ts";
import { exitTimeoutSeconds } from "../models/triton-times.ts";
import { containerInit, environmentList, healthcheckOf, tmpfs } from "./container-defaults.ts";
import type { EngineCache } from "./engine-cache.ts";
import { gpuRequest } from "./gpu-request.ts";
import { bindAddress } from "./host-plan.ts";
import type { ModelConfiguration } from "./model-configuration.ts";
import type { ServerContainerProps } from "./server-container.ts";
import {
  type Allocator,
  type ModelControl,
  maxRequestBytes,
  type TritonPlan,
  type TritonServerProps,
  tritonTmpMiB,
} from "./triton-plan.ts";

/** Constructs of a Triton server that its container mounts. */
export interface TritonMounts {
  /** Folders of the served models in the repository. */
  readonly models: readonly string[];
  readonly configurations: readonly ModelConfiguration[];
  /** Mounts of version folders beside those of the weights. */
  readonly pipelines: readonly ContainerVolumes[];
  readonly cache: EngineCache | undefined;
}

/** Libraries by name, because the folder depends on the architecture. */
const preloads: Readonly<Record<Allocator, string>> = {
  glibc: "",
  tcmalloc: "libtcmalloc.so.4",
  jemalloc: "libjemalloc.so.2",
};

/** Configuration of a Triton container, without its name, image, limits and network. */
export function tritonContainer(
  props: TritonServerProps,
  plan: TritonPlan,
  { models, pipelines, configurations, cache }: TritonMounts,
) {
  const { host, ports, weights, expose = "loopback", modelControl = "explicit" } = props;
  const { gpus, modelKind } = plan;
  const published = bindAddress(host.published(expose));
  const server = props.server.kind;
  const request = gpuRequest(gpus);
  // the emulator does not have these libraries
  const preload = server === "tritonserver" ? preloads[props.allocator ?? "glibc"] : "";
  const hasKey = modelControl === "explicit";
  const hasVersions = props.modelVersions !== undefined && weights.source !== "image";
  return {
    ...containerInit,
    command: [
      // the emulator reads the key itself
      ...(hasKey && server === "tritonserver" ? ["python3", "-c", tritonLauncher] : []),
      ...tritonCommand(
        models,
        modelControl,
        host.tracing && tracingFlags(host.tracing.endpoint, plan.service),
      ),
    ],
    gpus: request.gpus,
    runtime: request.runtime,
    env: environmentList({
      ...request.env,
      ...(server === "emulator" && { NODE_OPTIONS: nodeOptions }),
      ...(preload !== "" && { LD_PRELOAD: preload }),
      ...(hasKey && { [modelControlKeyVariable]: host.modelControlKey }),
    }),
    tmpfs: tmpfs(tritonTmpMiB),
    shmSize: plan.sharedMemoryMiB,
    ulimit: [
      // NVIDIA's recommendation: 64 MiB of stack, and unlimited pinned memory for GPUs
      ...(gpus.length > 0 && server === "tritonserver"
        ? [{ name: "memlock", soft: -1, hard: -1 }]
        : []),
      { name: "stack", soft: 67_108_864, hard: 67_108_864 },
    ],
    ports: [
      { internal: tritonPorts.http, external: ports.http, ip: published },
      { internal: tritonPorts.grpc, external: ports.grpc, ip: published },
      { internal: tritonPorts.metrics, external: ports.metrics, ip: bindAddress("loopback") },
    ],
    volumes: [
      ...(hasVersions ? weights.versionMounts(modelKind) : []),
      ...weights.mounts(modelKind, plan.towers),
      ...pipelines,
      ...configurations.map(({ mount }) => mount),
      ...(cache === undefined
        ? []
        : [{ volumeName: cache.volume.name, containerPath: engineCacheMount }]),
    ],
    test: readyTest[server],
    startSeconds: plan.startSeconds,
    graceSeconds: exitTimeoutSeconds,
  } satisfies Partial<ServerContainerProps>;
}

const controlRestrictions = { explicit: "key", none: "closed", open: "open" } as const;

function tritonCommand(
  models: readonly string[],
  modelControl: ModelControl,
  tracing: ReturnType<typeof tracingFlags> | undefined,
): readonly string[] {
  return renderTritonCommand({
    "model-repository": modelRepositoryMount,
    "model-config-name": deployedConfigName,
    "http-max-input-size": maxRequestBytes,
    "model-control-mode": modelControl === "none" ? "none" : "explicit",
    ...(modelControl !== "none" && { "load-model": [...models] }),
    ...restrictControl(controlRestrictions[modelControl]),
    "strict-readiness": true,
    "exit-on-error": true,
    "exit-timeout-secs": exitTimeoutSeconds,
    "disable-auto-complete-config": true,
    ...tracing,
  });
}

const readyUrl = `http://127.0.0.1:${tritonPorts.http}${oipPaths.ready}`;

/** Health check command that each image provides. */
const readyTest: Readonly<Record<TritonServerKind, readonly string[]>> = {
  tritonserver: ["CMD", "curl", "-fsS", readyUrl],
  emulator: healthcheckOf(readyUrl),
};
