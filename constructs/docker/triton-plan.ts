import { z } from "zod";
import {
  type backendKinds,
  type DeployedModelConfig,
  deployedModelConfig,
} from "../../contract/deployed-model-config.ts";
import { executionInstances } from "../../contract/model-config.ts";
import type { ModelConfigSettings } from "../../contract/model-config-settings.ts";
import { hostPorts, type TritonPorts, tritonPorts, tritonTlsOffset } from "../../contract/ports.ts";
import { type daliModels, tritonModelName } from "../../contract/triton-models.ts";
import { precisionSourceOf } from "../../contract/triton-releases.ts";
import { heapMiB, memoryLimitFindings, tritonMemoryMiB } from "../checks/container-limits.ts";
import { findingIf } from "../checks/findings.ts";
import type { GpuId } from "../checks/gpus.ts";
import {
  daliFindings,
  imageFindings,
  releaseFindings,
  tritonOptionFindings,
} from "../checks/images.ts";
import { exposureFindings, plaintextFindings } from "../checks/ports.ts";
import { exposure, gpuId, memoryLimitMiB, port } from "../checks/prop-types.ts";
import { u8FileFindings, weightsFindings } from "../checks/weights.ts";
import { type FileKind, type ServedTower, towerKind } from "../models/served-towers.ts";
import { tritonStartSeconds } from "../models/triton-times.ts";
import type { ProxyRoute } from "./caddyfile.ts";
import { type JpegDecoder, jpegKind } from "./dali-models.ts";
import type { GpuHost } from "./gpu-host.ts";
import type { HealthGate } from "./health-gate.ts";
import type { Exposure, HostUse } from "./host-plan.ts";
import type { ModelWeights, TowerWeights } from "./model-weights.ts";
import type { ImageSource, ServerImage } from "./server-image.ts";

/** Props of a Triton server on a GPU host, and the plan derived from them. */

/** Backend that executes the models in Triton. */
export type TritonBackend = keyof typeof backendKinds;

/** Server that speaks Triton's protocols. */
export type TritonServerKind =
  /** NVIDIA's Triton. */
  | { readonly kind: "tritonserver"; readonly image: ImageSource }
  /** Triton emulator of the embed image, with the same options. It always runs on the CPU. */
  | { readonly kind: "emulator" };

/** Access to the model control API, which loads and unloads models. */
export type ModelControl =
  /** A running Triton loads a changed configuration. The API requires a key that only a deployment has. */
  | "explicit"
  /** A changed configuration replaces the container. */
  | "none"
  /** Like `explicit`, but without a key: every client may load and unload models. */
  | "open";

/** Memory allocator of tritonserver: of the C library (`glibc`), or one that the Triton image contains. */
export type Allocator = "glibc" | "tcmalloc" | "jemalloc";

/** Maximum request body. A request of 32 images as JSON has about 95 MB; Triton's default of 64 MiB would reject it. */
export const maxRequestBytes = 128 * 1024 * 1024;

export const tritonTmpMiB = 256;

/** The settings of the model configurations apply to all models; `optimumBatchSize` is ignored with the backend `onnxruntime`. */
export interface TritonServerProps extends ModelConfigSettings {
  readonly host: GpuHost;
  readonly server: TritonServerKind;
  /** Embed image, which fills the volumes and contains the emulator. */
  readonly tools: ServerImage;
  readonly backend: TritonBackend;
  /** Weights of the served models. The backend `onnxruntime` serves image towers in their model kind, `tensorrt` in `trt`. */
  readonly weights: ModelWeights;
  /** @default "explicit" */
  readonly modelControl?: ModelControl;
  /**
   * Decoder of JPEG files. `dali`: Triton also serves `<model>_dali`, or `<model>_dali_trt` with the backend `tensorrt`, which accept
   * JPEG files.
   *
   * @default "none" - Triton accepts only preprocessed images
   */
  readonly jpegDecoder?: JpegDecoder;
  /** Host ports. */
  readonly ports: TritonPorts;
  /**
   * GPUs of the host, by index or by UUID. Ignored if the host's accelerator is `cpu`.
   *
   * @default - all
   */
  readonly gpus?: readonly GpuId[];
  /**
   * Interfaces on which HTTP and gRPC are published. Metrics are always on the loopback interface.
   *
   * @default "loopback"
   */
  readonly expose?: Exposure;
  /**
   * Whether publishing on all interfaces is allowed although Triton has no authentication.
   *
   * @default false
   */
  readonly allowUnauthenticated?: boolean;
  /**
   * Whether publishing on all interfaces is allowed although Triton has no TLS.
   *
   * @default false
   */
  readonly allowPlaintext?: boolean;
  /**
   * Triton server that is replaced first. This one keeps serving until that one is healthy.
   *
   * @default - no order
   */
  readonly after?: { readonly ready: HealthGate };
  /**
   * Shared memory (`/dev/shm`), in MiB.
   *
   * @default 1024 - NVIDIA's recommendation
   */
  readonly sharedMemoryMiB?: number;
  /**
   * Memory limit in MiB.
   *
   * @default - from the models and the largest requests
   */
  readonly memoryMiB?: number;
  /** @default "glibc" */
  readonly allocator?: Allocator;
}

/** Schemas of the props. */
export const tritonFields = {
  backend: z.enum(["onnxruntime", "tensorrt"]),
  modelControl: z.enum(["explicit", "none", "open"]).optional(),
  jpegDecoder: z.enum(["none", "dali"]).optional(),
  ports: z.strictObject({ http: port, grpc: port, metrics: port }),
  gpus: z.array(gpuId).optional(),
  expose: exposure.optional(),
  memoryMiB: memoryLimitMiB.optional(),
  allocator: z.enum(["glibc", "tcmalloc", "jemalloc"]).optional(),
};
/** Values in place of invalid props. */
export const tritonStandIns = { backend: "onnxruntime", ports: hostPorts.tritonOnnx } as const;

/** Model of the repository with its configuration. */
export interface ServedModel {
  readonly tower: ServedTower;
  /** Folder in the model repository and name in requests. */
  readonly name: string;
  /** Versions on which a compiled engine depends. */
  readonly engineVersions: readonly string[];
  readonly deployed: DeployedModelConfig;
}

/** Values derived from the props. */
export interface TritonPlan {
  /** Name of the server in the stack. */
  readonly service: string;
  readonly gpus: readonly GpuId[];
  /** Whether the server builds TensorRT engines. */
  readonly compiles: boolean;
  /** Files of the towers that the server loads. */
  readonly towers: readonly TowerWeights[];
  readonly served: readonly ServedModel[];
  /** Model kind of the image towers. */
  readonly modelKind: FileKind;
  /** Model kind of the ensembles that accept JPEG files; undefined without a decoder. */
  readonly jpegKind: keyof typeof daliModels | undefined;
  /** Number of execution instances of all models, over all GPUs. */
  readonly executionInstances: number;
  /** Maximum time until ready, with an empty engine cache. */
  readonly startSeconds: number;
  readonly sharedMemoryMiB: number;
  readonly memoryMiB: number;
  readonly use: HostUse;
  readonly findings: readonly string[];
}

/**
 * Derives the models, instances, limits and findings of a Triton server.
 *
 * @param service - Name of the server in the stack.
 * @param image - Image of the server.
 */
export function tritonPlan(
  props: TritonServerProps,
  service: string,
  image: ServerImage,
): TritonPlan {
  const { host, server, backend, weights, sharedMemoryMiB = 1024, modelVersions } = props;
  const gpus = host.accelerator === "gpu" ? (props.gpus ?? host.gpus) : [];
  const compiles = backend === "tensorrt" && host.accelerator === "gpu";
  const precision = precisionSourceOf(baseImageOf(server));
  const towers =
    compiles && precision !== "precision-mode" ? weights.tensorrtTowers : weights.towers;
  const modelKind = backend === "tensorrt" ? "trt" : weights.modelKind;
  const served = towers.map(({ tower, version }): ServedModel => {
    const kind = towerKind(tower, modelKind);
    const engineVersions = compiles ? [version, image.version].filter((each) => each !== "") : [];
    const deployed = deployedModelConfig(
      { spec: tower.spec, modelKind: kind },
      gpus.length,
      props,
      {
        precision,
        ...(engineVersions.length > 0 && { engineCachePrefix: engineVersions.join("_") }),
      },
    );
    return { tower, name: tritonModelName(tower.spec, kind), engineVersions, deployed };
  });
  const jpeg = jpegKind(backend, props.jpegDecoder);
  const perModel = served.map(({ deployed }) => executionInstances(deployed.config, gpus.length));
  const instances = Math.max(...perModel);
  const total = perModel.reduce((sum, count) => sum + count, 0);
  const memoryMiB =
    props.memoryMiB ??
    tritonMemoryMiB({
      models: weights.models,
      instances,
      compiles,
      gpus: gpus.length,
      versions: modelVersions,
      decodes: jpeg !== undefined,
      requestBytes: maxRequestBytes,
      sharedMiB: sharedMemoryMiB + tritonTmpMiB + (server.kind === "emulator" ? heapMiB : 0),
    });
  return {
    service,
    gpus,
    compiles,
    towers,
    served,
    modelKind,
    jpegKind: jpeg,
    executionInstances: total,
    startSeconds: tritonStartSeconds(compiles, total),
    sharedMemoryMiB,
    memoryMiB,
    use: hostUse(props, service, { gpus, instances, memoryMiB, decodes: jpeg !== undefined }),
    findings: [
      ...tritonFindings(props, served, jpeg !== undefined),
      ...memoryLimitFindings(memoryMiB, weights.models),
    ],
  };
}

function hostUse(
  { host, server, backend, ports, expose = "loopback", ...props }: TritonServerProps,
  service: string,
  plan: {
    readonly gpus: readonly GpuId[];
    readonly instances: number;
    readonly memoryMiB: number;
    readonly decodes: boolean;
  },
): HostUse {
  return {
    tritonImage: baseImageOf(server),
    gpus: {
      ids: plan.gpus,
      use: {
        service,
        backend,
        instances: Math.ceil(plan.instances / Math.max(1, plan.gpus.length)),
        models: props.weights.models,
        decodes: plan.decodes,
        versions: props.modelVersions,
        reloads: props.modelControl !== "none",
      },
    },
    ports: [
      ...(["http", "grpc", "metrics"] as const).map((name) => ({
        service,
        prop: `ports.${name}`,
        port: ports[name],
        expose: name === "metrics" ? "loopback" : host.published(expose),
      })),
      ...tlsRoutes(service, ports)
        .filter(() => host.isProxied(expose))
        .map(({ protocol, port }) => ({ service, prop: `ports.${protocol}`, port, expose })),
    ],
    memory: { service, miB: plan.memoryMiB },
  };
}

/**
 * Routes of the proxy with TLS to a Triton server.
 *
 * @param name - Name of its container.
 */
export function tlsRoutes(name: string, ports: TritonPorts): readonly ProxyRoute[] {
  return (["http", "grpc"] as const).map((protocol) => ({
    protocol,
    port: ports[protocol] + tritonTlsOffset,
    upstream: `${name}:${tritonPorts[protocol]}`,
  }));
}

function tritonFindings(
  props: TritonServerProps,
  served: readonly ServedModel[],
  decodes: boolean,
): readonly string[] {
  const { host, server, backend, weights, modelControl = "explicit", expose = "loopback" } = props;
  return [
    ...(server.kind === "tritonserver" ? tritonImageFindings(server.image, host) : []),
    ...(decodes ? daliFindings(weights.source, baseImageOf(server)) : []),
    // the same setting is wrong for all models
    ...new Set(served.flatMap(({ deployed }) => deployed.problems)),
    ...weightsFindings(weights.source, modelControl, props.modelVersions),
    ...u8FileFindings("weights.modelKind", weights.modelKind, [
      ["backend", backend, "onnxruntime"],
    ]),
    ...exposureFindings(expose, props.allowUnauthenticated ?? false, modelControl),
    ...plaintextFindings(expose, host.isProxied(expose) || props.allowPlaintext === true),
    ...(host.isProxied(expose) ? tlsPortFindings(props.ports) : []),
  ];
}

/** Rejects ports without a port for TLS. */
function tlsPortFindings(ports: TritonPorts): readonly string[] {
  const largest = 65_535 - tritonTlsOffset;
  return (["http", "grpc"] as const).flatMap((name) =>
    findingIf(
      ports[name] > largest,
      `ports.${name}`,
      `be at most ${largest}, because the port with TLS is ${tritonTlsOffset} higher`,
      ports[name],
    ),
  );
}

/** Name of the Triton image, or of the base image of a build; undefined for the emulator. */
function baseImageOf(server: TritonServerKind): string | undefined {
  if (server.kind === "emulator") return undefined;
  const { image } = server;
  return image.source === "pull" ? image.name : image.buildArgs?.TRITON_IMAGE;
}

function tritonImageFindings(source: ImageSource, host: GpuHost): readonly string[] {
  const name = baseImageOf({ kind: "tritonserver", image: source });
  if (name === undefined) return [];
  const path = source.source === "pull" ? "image" : "image.buildArgs.TRITON_IMAGE";
  return [
    ...imageFindings(name, path),
    ...tritonOptionFindings(name, path),
    ...(host.accelerator === "gpu" ? releaseFindings(name, host.gpu, path) : []),
  ];
}
