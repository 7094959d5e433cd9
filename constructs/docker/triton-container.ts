import type {
  ContainerConfig,
  ContainerVolumes,
} from "@cdktf/provider-docker/lib/container/index.js";
import type { TritonServerKind } from "../../contract/environment.ts";
import { deployedConfigName, engineCacheMount } from "../../contract/model-config.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import { type TritonPorts, tritonPorts } from "../../contract/ports.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import {
  modelControlKeyVariable,
  renderTritonCommand,
  restrictControl,
} from "../../contract/triton-flags.ts";
import { tritonLauncher } from "../../contract/triton-launcher.ts";
import { type limitsOf, nodeOptions } from "../checks/container-limits.ts";
import type { GpuId } from "../checks/gpus.ts";
import type { FileKind } from "../models/served-towers.ts";
import { exitTimeoutSeconds } from "../models/triton-times.ts";
import {
  containerInit,
  environmentList,
  hardened,
  healthcheck,
  healthcheckOf,
  stopAfter,
  tmpfs,
} from "./container-defaults.ts";
import type { EngineCache } from "./engine-cache.ts";
import { bindAddress, type Exposure } from "./gpu-host.ts";
import { gpuRequest } from "./gpu-request.ts";
import type { ModelConfiguration } from "./model-configuration.ts";
import type { ModelWeights, TowerWeights } from "./model-weights.ts";

/** Access to the model control API, which loads and unloads models. */
export type ModelControl =
  /** A running Triton loads a changed configuration. The API requires a key that only a deployment has. */
  | "explicit"
  /** A changed configuration replaces the container. */
  | "none"
  /** Like `explicit`, but without a key: every client may load and unload models. */
  | "open";

/** Options of a Triton container. */
export interface TritonContainerOptions {
  readonly server: TritonServerKind;
  /** Folders of the served models in the repository. */
  readonly models: readonly string[];
  /** Model kind of the image towers. */
  readonly served: FileKind;
  readonly modelControl: ModelControl;
  /** Key of the model control API, with `modelControl: explicit`. */
  readonly modelControlKey: () => string;
  readonly gpus: readonly GpuId[];
  readonly ports: TritonPorts;
  readonly expose: Exposure;
  readonly weights: ModelWeights;
  /** Files of the towers. */
  readonly towers: readonly TowerWeights[];
  readonly configurations: readonly ModelConfiguration[];
  /** Mounts of version folders beside those of the weights. */
  readonly pipelines: readonly ContainerVolumes[];
  /** Whether versions can be added to the models. */
  readonly hasVersions: boolean;
  readonly cache: EngineCache | undefined;
  readonly sharedMemoryMiB: number;
  readonly allocator: Allocator;
  readonly limits: ReturnType<typeof limitsOf>;
  readonly startSeconds: number;
}

/** Memory allocator of tritonserver: that of the C library, or one of its image. */
export type Allocator = keyof typeof preloads;

/** Libraries by name, because the folder depends on the architecture. */
const preloads = { glibc: "", tcmalloc: "libtcmalloc.so.4", jemalloc: "libjemalloc.so.2" } as const;

export const tritonTmpMiB = 256;

/** Configuration of a Triton container, without its name, image and network. */
export function tritonContainer(options: TritonContainerOptions) {
  const { server, gpus, ports, expose, weights, configurations, cache } = options;
  const request = gpuRequest(gpus);
  // the emulator does not have these libraries
  const preload = server === "tritonserver" ? preloads[options.allocator] : "";
  const hasKey = options.modelControl === "explicit";
  return {
    ...hardened,
    ...containerInit,
    ...options.limits,
    command: [
      // the emulator reads the key itself
      ...(hasKey && server === "tritonserver" ? ["python3", "-c", tritonLauncher] : []),
      ...tritonCommand(options),
    ],
    gpus: request.gpus,
    runtime: request.runtime,
    env: environmentList({
      ...request.env,
      ...(server === "emulator" && { NODE_OPTIONS: nodeOptions }),
      ...(preload !== "" && { LD_PRELOAD: preload }),
      ...(hasKey && { [modelControlKeyVariable]: options.modelControlKey() }),
    }),
    tmpfs: tmpfs(tritonTmpMiB),
    shmSize: options.sharedMemoryMiB,
    ulimit: [
      // NVIDIA's recommendation: 64 MiB of stack, and unlimited pinned memory for GPUs
      ...(gpus.length > 0 && server === "tritonserver"
        ? [{ name: "memlock", soft: -1, hard: -1 }]
        : []),
      { name: "stack", soft: 67_108_864, hard: 67_108_864 },
    ],
    ports: [
      { internal: tritonPorts.http, external: ports.http, ip: bindAddress(expose) },
      { internal: tritonPorts.grpc, external: ports.grpc, ip: bindAddress(expose) },
      { internal: tritonPorts.metrics, external: ports.metrics, ip: bindAddress("loopback") },
    ],
    volumes: [
      ...(options.hasVersions ? weights.versionMounts(options.served) : []),
      ...weights.mounts(options.served, options.towers),
      ...options.pipelines,
      ...configurations.map(({ mount }) => mount),
      ...(cache === undefined
        ? []
        : [{ volumeName: cache.volume.name, containerPath: engineCacheMount }]),
    ],
    healthcheck: healthcheck(readyTest[server], options.startSeconds),
    ...stopAfter(exitTimeoutSeconds),
  } satisfies Partial<ContainerConfig>;
}

/** Maximum request body. A request of 32 images as JSON has about 95 MB; Triton's default of 64 MiB would reject it. */
export const maxRequestBytes = 128 * 1024 * 1024;

const controlRestrictions = { explicit: "key", none: "closed", open: "open" } as const;

function tritonCommand(options: TritonContainerOptions): readonly string[] {
  const { models, modelControl } = options;
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
  });
}

const readyUrl = `http://127.0.0.1:${tritonPorts.http}${oipPaths.ready}`;

/** Health check command that each image provides. */
const readyTest: Readonly<Record<TritonServerKind, readonly string[]>> = {
  tritonserver: ["CMD", "curl", "-fsS", readyUrl],
  emulator: healthcheckOf(readyUrl),
};
