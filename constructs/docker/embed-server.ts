import { Container } from "@cdktf/provider-docker/lib/container/index.js";
import { Construct } from "constructs";
import { embedPaths } from "../../contract/embed-api.ts";
import type { Service } from "../../contract/environment.ts";
import { type ModelName, openclipVitB32 } from "../../contract/model-signature.ts";
import { embedPort } from "../../contract/ports.ts";
import {
  minKeyLength,
  modelRepositoryMount,
  type ServerEnvName,
} from "../../contract/server-env.ts";
import { addressOf, TerraformVariable } from "../cdktf.ts";
import type { GpuId } from "../checks/gpus.ts";
import { expression } from "../expression.ts";
import { nameInStack, objectName } from "../names.ts";
import {
  checkStopTimes,
  environmentList,
  hardened,
  healthcheck,
  healthcheckOf,
  labels,
  nodeProcess,
  stopAfter,
  tmpfs,
  verdictSeconds,
} from "./container-defaults.ts";
import { bindAddress, type Exposure, type GpuHost } from "./gpu-host.ts";
import { gpuRequest } from "./gpu-request.ts";
import { HealthGate } from "./health-gate.ts";
import type { ModelWeights } from "./model-weights.ts";
import type { ServerImage } from "./server-image.ts";
import type { TritonServer } from "./triton-server.ts";
import { weightsPath } from "./weights-file.ts";

/** Backend of the embed server. */
export type EmbedBackend =
  /** ONNX Runtime in the embed server. `gpus` is ignored if the host's accelerator is `cpu`. */
  | {
      readonly kind: "onnxruntime";
      readonly weights: ModelWeights;
      readonly gpus: readonly GpuId[];
    }
  /** Gateway: preprocessing in the embed server, inference on Tritons that all serve the same model. */
  | { readonly kind: "triton"; readonly upstreams: readonly TritonServer[] };

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
}

/** Time limit for accepted requests when the server stops. */
const graceSeconds = 30;

/** Time limit for loading the model into ONNX Runtime, or for connecting to a ready Triton. */
const loadSeconds = 120;

/** Embed server in a container. */
export class EmbedServer extends Construct {
  /** Entry of the environment output. */
  readonly service: Service;
  /** Underlying container. For anything the props do not cover, use `container.addOverride()`. */
  readonly container: Container;
  /** Bearer token required from clients if the port is published on all interfaces: `TF_VAR_<name>_api_key`. */
  readonly apiKey?: TerraformVariable;

  constructor(scope: Construct, id: string, props: EmbedServerProps) {
    super(scope, id);

    const { host, image, backend, port = embedPort, expose = "loopback" } = props;
    const gpus = backend.kind === "onnxruntime" && host.accelerator === "gpu" ? backend.gpus : [];
    const name = nameInStack(this);

    if (gpus.length > 0)
      host.useGpus(this, gpus, { service: name, backend: "onnxruntime", instances: 1 });
    host.publish(this, [{ service: name, prop: "port", port, expose }]);

    const request = gpuRequest(gpus);
    if (expose !== "loopback") this.apiKey = apiKeyVariable(this, name);
    const startSeconds = startSecondsOf(backend);
    this.container = new Container(this, "container", {
      ...hardened,
      ...nodeProcess,
      provider: host.services,
      name: objectName(this),
      image: image.imageId,
      labels: labels(this, name),
      gpus: request.gpus,
      runtime: request.runtime,
      env: environmentList({
        ...request.env,
        ...serverSettings(backend, gpus),
        ...accessSettings(this.apiKey),
      }),
      tmpfs: tmpfs(64),
      networksAdvanced: [{ name: host.network.name }],
      ports: [{ internal: embedPort, external: port, ip: bindAddress(expose) }],
      volumes:
        backend.kind === "onnxruntime" ? [...backend.weights.mounts(backend.weights.model)] : [],
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

    this.service = this.#environmentEntry(`http://${host.clientAddress(expose)}:${port}`, backend);
  }

  #environmentEntry(url: string, backend: EmbedBackend): Service {
    return {
      name: nameInStack(this),
      kind: "embed",
      backend: backend.kind,
      model: modelOf(backend),
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
): Partial<Record<ServerEnvName, string>> {
  const common = {
    EXECUTION_PROVIDER: gpus.length > 0 ? "cuda" : "cpu",
    PORT: String(embedPort),
    SHUTDOWN_GRACE_SECONDS: String(graceSeconds),
  };
  return backend.kind === "onnxruntime"
    ? {
        ...common,
        BACKEND: "onnxruntime",
        MODEL_PATH: weightsPath(modelRepositoryMount, backend.weights.model),
      }
    : {
        ...common,
        BACKEND: "triton",
        TRITON_GRPC_URLS: backend.upstreams.map(({ grpcTarget }) => grpcTarget).join(","),
        TRITON_MODEL: modelOf(backend),
      };
}

function modelOf(backend: EmbedBackend): ModelName {
  if (backend.kind === "onnxruntime") return backend.weights.model;
  return backend.upstreams[0]?.model ?? openclipVitB32.name;
}
