import type { ContainerVolumes } from "#providers/docker/lib/container/index.js";
import type { Service } from "../../contract/environment.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import { embedPort } from "../../contract/ports.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import { type ServerEnvName, serverEnv } from "../../contract/server/server-env.ts";
import {
  type ServerSettings,
  serverFindings,
  serverVariables,
} from "../../contract/server/server-settings.ts";
import { tracingEnv } from "../../contract/server/tracing.ts";
import type { daliModels } from "../../contract/triton-models.ts";
import {
  embedMemoryMiB,
  heapMiB,
  largestImages,
  memoryLimitFindings,
  nodeOptions,
} from "../checks/container-limits.ts";
import type { GpuId } from "../checks/gpus.ts";
import { precisionFindings, u8FileFindings } from "../checks/weights.ts";
import type { FileKind } from "../models/served-towers.ts";
import { type EmbedAccess, type EmbedAccessProps, embedAccess } from "./embed-access.ts";
import type { GpuHost } from "./gpu-host.ts";
import type { HostUse } from "./host-plan.ts";
import type { ModelWeights } from "./model-weights.ts";
import { type RemoteUpstream, remoteUpstreamPlan, upstreamFindings } from "./remote-upstreams.ts";
import type { ServerImage } from "./server-image.ts";
import type { TritonServer } from "./triton-server.ts";

/** Props of an embed server on a GPU host, and the plan derived from them. */

/** Backend of the embed server. */
export type EmbedBackend =
  /** ONNX Runtime in the embed server. `gpus` is ignored if the host's accelerator is `cpu`. */
  | {
      readonly kind: "onnxruntime";
      readonly weights: ModelWeights;
      readonly gpus: readonly GpuId[];
    }
  /** Gateway: preprocessing in the embed server, inference on Triton servers that all serve the same models. */
  | {
      readonly kind: "triton";
      /** Triton servers of the stack. */
      readonly upstreams: readonly TritonServer[];
      /**
       * Models and their model kind on the Triton servers of other hosts, with `upstreams` of the embed server.
       *
       * @default - those of the first Triton server of the stack
       */
      readonly remote?: RemoteModels;
    };

export interface RemoteModels {
  /** Specs and tokenizers of the models. */
  readonly weights: ModelWeights;
  readonly modelKind: FileKind;
  /** @default - no decoder */
  readonly jpegKind?: keyof typeof daliModels;
}

export interface EmbedServerProps extends EmbedAccessProps {
  readonly host: GpuHost;
  /** Embed image; `embed-gpu` for ONNX Runtime on a GPU. */
  readonly image: ServerImage;
  readonly backend: EmbedBackend;
  /**
   * Host port.
   *
   * @default 8002
   */
  readonly port?: number;
  /**
   * Memory limit in MiB.
   *
   * @default - from the models and the largest requests
   */
  readonly memoryMiB?: number;
  /**
   * Triton servers on other hosts to which a gateway also forwards.
   *
   * @default - none
   */
  readonly upstreams?: readonly RemoteUpstream[];
  /**
   * Variables of the server that the construct does not set itself (docs/server-variables.md).
   *
   * @default - the defaults of the server
   */
  readonly server?: ServerSettings;
}

export const tmpMiB = 64;

/** Time limit for loading the model into ONNX Runtime, or for connecting to a ready Triton. */
const loadSeconds = 120;

/** Values derived from the props. */
export interface EmbedPlan {
  /** Specs of the served models; the first is the default. */
  readonly models: readonly ModelSpec[];
  readonly gpus: readonly GpuId[];
  readonly access: EmbedAccess;
  /** Environment variables, without those of the GPU request and of a key in a variable. */
  readonly env: Partial<Record<ServerEnvName, string>> & { readonly NODE_OPTIONS: string };
  readonly mounts: readonly ContainerVolumes[];
  /** Maximum start time. */
  readonly startSeconds: number;
  /** Maximum time to answer accepted requests when the server stops. */
  readonly graceSeconds: number;
  readonly memoryMiB: number;
  readonly use: HostUse;
  /** Whether the Docker network must have IPv6. */
  readonly needsIpv6: boolean;
  readonly findings: readonly string[];
  /** Entry of the environment output, without endpoints and resources. */
  readonly service: Omit<Service, "endpoints" | "resources">;
}

/**
 * Derives the models, settings, limits and findings of an embed server.
 *
 * @param name - Name of the server in the stack.
 */
export function embedPlan(props: EmbedServerProps, name: string): EmbedPlan {
  const { host, backend, port = embedPort, upstreams = [], server } = props;
  const isGateway = backend.kind === "triton";
  const models = modelsOf(backend);
  const gpus = !isGateway && host.accelerator === "gpu" ? backend.gpus : [];
  const remote = remoteUpstreamPlan(upstreams);
  const access = embedAccess(props);
  const executed = isGateway ? [] : models;
  const limits = serverLimits(server, host.cores);
  const onGpu = gpus.length > 0;
  const memoryMiB =
    props.memoryMiB ?? embedMemoryMiB({ models: executed, onGpu, ...limits, tmpMiB });
  const { instances, graceSeconds } = limits;
  const use = { service: name, backend: "onnxruntime", instances, models } as const;
  return {
    models,
    gpus,
    access,
    env: {
      ...serverSettings(backend, gpus, remote.targets),
      ...remote.env,
      ...access.env,
      MAX_PIXELS_IN_FLIGHT: String(limits.pixelsInFlight),
      SHUTDOWN_GRACE_SECONDS: String(graceSeconds),
      NODE_OPTIONS: nodeOptions,
      ...(host.tracing && tracingEnv(host.tracing, name)),
      ...serverVariables(server),
    },
    mounts: [...weightsMounts(backend), ...remote.mounts, ...access.mounts],
    startSeconds: startSecondsOf(backend),
    graceSeconds,
    memoryMiB,
    use: {
      ...(onGpu && { gpus: { ids: gpus, use } }),
      ports: [{ service: name, prop: "port", port, expose: access.published }],
      memory: { service: name, miB: memoryMiB },
      files: [...remote.files, ...access.files],
    },
    needsIpv6: remote.needsIpv6,
    findings: [
      ...access.findings,
      ...serverFindings(server, isGateway ? "triton" : onGpu ? "cuda" : "cpu"),
      ...(isGateway ? [] : precisionFindings(server, backend.weights.source)),
      ...upstreamFindings(upstreams, isGateway ? backend.upstreams.length : undefined),
      ...(isGateway
        ? []
        : u8FileFindings("backend.weights.modelKind", backend.weights.modelKind, [
            ["backend.kind", backend.kind, "triton"],
          ])),
      ...memoryLimitFindings(memoryMiB, executed, heapMiB),
    ],
    service: {
      name,
      kind: "embed",
      backend: backend.kind,
      models: models.map((spec) => spec.name),
      modelKind: kindOf(backend),
      ...jpegKindOf(backend),
      ...(remote.targets.length > 0 && { upstreams: [...remote.targets] }),
      authorization: access.requiresKey ? "bearer" : undefined,
    },
  };
}

/** Decoding threads of a host whose cores are unknown. */
const maxThreads = 16;

/** Limits that follow from the settings of the server. */
function serverLimits(settings: ServerSettings = {}, cores: number | undefined) {
  const server = serverEnv.parse(serverVariables(settings));
  const { MAX_IMAGE_PIXELS: image, MAX_PIXELS_IN_FLIGHT: pixels } = server;
  const threads = settings.preprocessThreads || cores || maxThreads;
  const isPerThread = settings.maxPixelsInFlight === 0;
  return {
    queueBytes: server.MAX_QUEUE_BYTES,
    pixelsInFlight: pixels || image * (isPerThread ? threads : largestImages),
    instances: server.MODEL_INSTANCES,
    graceSeconds: server.SHUTDOWN_GRACE_SECONDS,
  };
}

/** Maximum start time. A gateway becomes ready after its first Triton server, which may build engines for minutes. */
function startSecondsOf(backend: EmbedBackend): number {
  if (backend.kind === "onnxruntime") return loadSeconds;
  return loadSeconds + Math.max(0, ...backend.upstreams.map((triton) => triton.startSeconds));
}

function serverSettings(
  backend: EmbedBackend,
  gpus: readonly GpuId[],
  remote: readonly string[],
): Partial<Record<ServerEnvName, string>> {
  const common = {
    EXECUTION_PROVIDER: gpus.length > 0 ? "cuda" : "cpu",
    PORT: String(embedPort),
    // the provider cannot upload a file to a container with a read-only root file system
    ...modelSettings(modelsOf(backend)),
  };
  return backend.kind === "onnxruntime"
    ? { ...common, BACKEND: "onnxruntime" }
    : {
        ...common,
        BACKEND: "triton",
        TRITON_GRPC_URLS: [
          ...backend.upstreams.map(({ grpcTarget }) => grpcTarget),
          ...remote,
        ].join(","),
        TRITON_MODEL_KIND: jpegKindOf(backend).jpegKind ?? kindOf(backend),
      };
}

function weightsMounts(backend: EmbedBackend): readonly ContainerVolumes[] {
  return backend.kind === "onnxruntime"
    ? backend.weights.mounts()
    : (servedBy(backend)?.weights.tokenizerMounts() ?? []);
}

/** Models of the upstreams and their model kind. */
function servedBy({
  upstreams: [first],
  remote,
}: Extract<EmbedBackend, { kind: "triton" }>): RemoteModels | undefined {
  return first ?? remote;
}

function modelsOf(backend: EmbedBackend): readonly ModelSpec[] {
  if (backend.kind === "onnxruntime") return backend.weights.models;
  return servedBy(backend)?.weights.models ?? defaultModels;
}

/** Model kind to which a gateway forwards JPEG files. */
function jpegKindOf(backend: EmbedBackend): Pick<Service, "jpegKind"> {
  const jpegKind = backend.kind === "triton" ? servedBy(backend)?.jpegKind : undefined;
  return jpegKind === undefined ? {} : { jpegKind };
}

function kindOf(backend: EmbedBackend): FileKind {
  if (backend.kind === "onnxruntime") return backend.weights.modelKind;
  return servedBy(backend)?.modelKind ?? "fp32";
}
