import { Container, type ContainerVolumes } from "@cdktf/provider-docker/lib/container/index.js";
import { Construct } from "constructs";
import { embedPaths } from "../../contract/embed-api.ts";
import type { Service } from "../../contract/environment.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import { embedPort } from "../../contract/ports.ts";
import {
  minKeyLength,
  modelSettings,
  type ServerEnvName,
  serverEnv,
} from "../../contract/server/server-env.ts";
import type { daliModels } from "../../contract/triton-models.ts";
import {
  embedMemoryMiB,
  heapMiB,
  limitsOf,
  memoryLimitFindings,
  nodeOptions,
  pixelsInFlight,
} from "../checks/container-limits.ts";
import { check } from "../checks/findings.ts";
import type { GpuId } from "../checks/gpus.ts";
import { exposure, memoryLimitMiB, port as portType } from "../checks/prop-types.ts";
import { checkedProps } from "../checks/props.ts";
import { u8FileFindings } from "../checks/weights.ts";
import type { FileKind } from "../models/served-towers.ts";
import { addressOf, TerraformVariable } from "../terraform/cdktf.ts";
import { expression } from "../terraform/expression.ts";
import { nameInStack, objectName } from "../terraform/names.ts";
import {
  checkStopTimes,
  containerInit,
  environmentList,
  hardened,
  healthcheck,
  healthcheckOf,
  labels,
  stopAfter,
  tmpfs,
  verdictSeconds,
} from "./container-defaults.ts";
import { bindAddress, type Exposure, type GpuHost } from "./gpu-host.ts";
import { gpuRequest } from "./gpu-request.ts";
import { HealthGate } from "./health-gate.ts";
import type { ModelWeights } from "./model-weights.ts";
import { type RemoteUpstream, remoteUpstreams } from "./remote-upstreams.ts";
import type { ServerImage } from "./server-image.ts";
import type { TritonServer } from "./triton-server.ts";

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

export interface EmbedServerProps {
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
   * Interfaces on which the port is published.
   *
   * @default "loopback"
   */
  readonly expose?: Exposure;
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
}

/** Time limit for accepted requests when the server stops. */
const graceSeconds = 30;

const tmpMiB = 64;

/** Time limit for loading the model into ONNX Runtime, or for connecting to a ready Triton. */
const loadSeconds = 120;

/** Embed server in a container. */
export class EmbedServer extends Construct {
  /** Entry of the environment output. */
  readonly service: Service;
  /** Specs of the served models; the first is the default. */
  readonly models: readonly ModelSpec[];
  /** Underlying container. For anything the props do not cover, use `container.addOverride()`. */
  readonly container: Container;
  /** Bearer token required from clients if the port is published on all interfaces: `TF_VAR_<name>_api_key`. */
  readonly apiKey?: TerraformVariable;

  constructor(scope: Construct, id: string, given: EmbedServerProps) {
    super(scope, id);

    const props = checkedProps(this, given, {
      port: portType.optional(),
      expose: exposure.optional(),
      memoryMiB: memoryLimitMiB.optional(),
    });
    const { host, image, backend, port = embedPort, expose = "loopback" } = props;
    const gpus = backend.kind === "onnxruntime" && host.accelerator === "gpu" ? backend.gpus : [];
    const name = nameInStack(this);
    this.models = modelsOf(backend);
    const own = backend.kind === "triton" ? backend.upstreams.length : undefined;
    const remote = remoteUpstreams(this, host, props.upstreams ?? [], own);

    if (backend.kind === "onnxruntime") {
      const { modelKind } = backend.weights;
      check(this, () =>
        u8FileFindings("backend.weights.modelKind", modelKind, [
          ["backend.kind", backend.kind, "triton"],
        ]),
      );
    }
    if (gpus.length > 0)
      host.useGpus(this, gpus, {
        service: name,
        backend: "onnxruntime",
        instances: 1,
        models: this.models,
      });
    host.publish(this, [{ service: name, prop: "port", port, expose }]);

    const request = gpuRequest(gpus);
    if (expose !== "loopback") this.apiKey = apiKeyVariable(this, name);
    const startSeconds = startSecondsOf(backend);
    const limits = this.#limits(props, gpus);
    this.container = new Container(this, "container", {
      ...hardened,
      ...containerInit,
      ...limits,
      provider: host.services,
      name: objectName(this),
      image: image.imageId,
      labels: labels(this, name),
      gpus: request.gpus,
      runtime: request.runtime,
      env: environmentList({
        ...request.env,
        ...serverSettings(backend, gpus, remote.targets),
        ...remote.env,
        ...accessSettings(this.apiKey),
        MAX_PIXELS_IN_FLIGHT: String(pixelsInFlight),
        NODE_OPTIONS: nodeOptions,
      }),
      tmpfs: tmpfs(tmpMiB),
      networksAdvanced: [{ name: host.network.name }],
      ports: [{ internal: embedPort, external: port, ip: bindAddress(expose) }],
      volumes: [...weightsMounts(backend), ...remote.mounts],
      healthcheck: healthcheck(
        healthcheckOf(`http://127.0.0.1:${embedPort}${embedPaths.readyz}`),
        startSeconds,
      ),
      ...stopAfter(graceSeconds),
    });

    checkStopTimes(this.container, graceSeconds);
    new HealthGate(this, "ready", {
      container: this.container,
      docker: host.docker,
      command: host.command,
      timeoutSeconds: verdictSeconds(startSeconds),
    });

    const url = `http://${host.clientAddress(expose)}:${port}`;
    this.service = this.#environmentEntry(url, backend, remote.targets);
  }

  #limits({ host, backend, memoryMiB }: EmbedServerProps, gpus: readonly GpuId[]) {
    const models = backend.kind === "onnxruntime" ? this.models : [];
    const queueBytes = serverEnv.shape.MAX_QUEUE_BYTES.parse(undefined);
    const limit =
      memoryMiB ?? embedMemoryMiB({ models, onGpu: gpus.length > 0, queueBytes, tmpMiB });
    check(this, () => memoryLimitFindings(limit, models, heapMiB));
    host.requireMemory({ service: nameInStack(this), miB: limit });
    return limitsOf("embed", limit, host.cores);
  }

  #environmentEntry(url: string, backend: EmbedBackend, remote: readonly string[]): Service {
    return {
      name: nameInStack(this),
      kind: "embed",
      backend: backend.kind,
      models: this.models.map((spec) => spec.name),
      modelKind: kindOf(backend),
      ...jpegKindOf(backend),
      ...(remote.length > 0 && { upstreams: [...remote] }),
      authorization: this.apiKey === undefined ? undefined : "bearer",
      resources: { container: addressOf(this.container) },
      endpoints: [
        { protocol: "embed-http", url, name: "embed-http" },
        { protocol: "metrics", url },
      ],
    };
  }
}

/** Maximum start time. A gateway becomes ready after its first Triton, which may build engines for minutes. */
function startSecondsOf(backend: EmbedBackend): number {
  if (backend.kind === "onnxruntime") return loadSeconds;
  return loadSeconds + Math.max(0, ...backend.upstreams.map((triton) => triton.startSeconds));
}

function apiKeyVariable(server: EmbedServer, service: string): TerraformVariable {
  const name = `${service.replaceAll("-", "_")}_api_key`;
  const variable = new TerraformVariable(server, "api-key", {
    type: "string",
    sensitive: true,
    nullable: false,
    description: `Bearer token of ${service}, whose port is public: TF_VAR_${name}, for example from 'openssl rand -hex 32'.`,
    validation: [
      {
        condition: expression(`length(var.${name}) >= ${minKeyLength}`),
        errorMessage: `The key must have at least ${minKeyLength} characters.`,
      },
    ],
  });
  variable.overrideLogicalId(name);
  return variable;
}

/** Settings of the authentication: a port on the loopback interface requires no key. */
function accessSettings(
  apiKey: TerraformVariable | undefined,
): Partial<Record<ServerEnvName, string>> {
  return apiKey === undefined ? { ALLOW_ANONYMOUS: "true" } : { API_KEY: apiKey.stringValue };
}

function serverSettings(
  backend: EmbedBackend,
  gpus: readonly GpuId[],
  remote: readonly string[],
): Partial<Record<ServerEnvName, string>> {
  const common = {
    EXECUTION_PROVIDER: gpus.length > 0 ? "cuda" : "cpu",
    PORT: String(embedPort),
    SHUTDOWN_GRACE_SECONDS: String(graceSeconds),
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
