import { Container } from "@cdktf/provider-docker/lib/container/index.js";
import { Construct } from "constructs";
import { embedPaths } from "../../contract/embed-api.ts";
import type { Service } from "../../contract/environment.ts";
import { openclipVitB32 } from "../../contract/model-signature.ts";
import { embedPort } from "../../contract/ports.ts";
import {
  minKeyLength,
  modelRepositoryMount,
  type ServerEnvName,
} from "../../contract/server-env.ts";
import { TerraformStack, TerraformVariable } from "../cdktf.ts";
import type { GpuId } from "../checks/gpus.ts";
import { expression } from "../expression.ts";
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

/** What computes the embeddings. */
export type EmbedBackend =
  /** ONNX Runtime in the embed server; `gpus` are read where the host has them. */
  | {
      readonly kind: "onnxruntime";
      readonly weights: ModelWeights;
      readonly gpus: readonly GpuId[];
    }
  /** Gateway: preprocess here, infer on one or more Tritons that serve the same model. */
  | { readonly kind: "triton"; readonly upstreams: readonly TritonServer[] };

export interface EmbedServerProps {
  readonly host: GpuHost;
  /** The embed image; `embed-gpu` where ONNX Runtime computes on a GPU. */
  readonly image: ServerImage;
  readonly backend: EmbedBackend;
  /** Port of the host. */
  readonly port: number;
  /** Who reaches it. */
  readonly expose: Exposure;
}

/** How long a stop waits for accepted requests, in seconds. */
const graceSeconds = 30;

/** Time to load the model into ONNX Runtime, or to find a Triton that is ready once there is one. */
const loadSeconds = 120;

/** The embed server in a container: JPEG in, embedding out. */
export class EmbedServer extends Construct {
  /** What the environment output says of it. */
  readonly service: Service;
  /** The container itself. For what the props do not cover, use `container.addOverride()`. */
  readonly container: Container;
  /** The bearer token that clients must send, where everybody reaches the port: `TF_VAR_<id>_api_key`. */
  readonly apiKey?: TerraformVariable;

  constructor(scope: Construct, id: string, props: EmbedServerProps) {
    super(scope, id);

    const { host, image, backend, port, expose } = props;
    const gpus = backend.kind === "onnxruntime" && host.accelerator === "gpu" ? backend.gpus : [];

    if (gpus.length > 0)
      host.run(this, gpus, { service: id, backend: "onnxruntime", instances: 1 });
    host.publish(this, [{ service: id, prop: "port", port, expose }]);

    const name = `${TerraformStack.of(this).node.id}-${id}`;
    const request = gpuRequest(gpus);
    if (expose !== "loopback") this.apiKey = apiKeyVariable(this, id);
    // a gateway starts beside its Tritons, and is ready after the first of them: TensorRT's may build engines for minutes
    const startSeconds =
      backend.kind === "onnxruntime"
        ? loadSeconds
        : loadSeconds + Math.max(0, ...backend.upstreams.map((triton) => triton.startSeconds));

    this.container = new Container(this, "container", {
      ...hardened,
      ...nodeProcess,
      provider: host.services,
      name,
      image: image.imageId,
      labels: labels(this, id),
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
        backend.kind === "onnxruntime" ? [...backend.weights.mounts(openclipVitB32.name)] : [],
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
    this.service = {
      name: id,
      kind: "embed",
      backend: backend.kind,
      model: backend.kind === "triton" ? upstreamModel(backend.upstreams) : openclipVitB32.name,
      authorization: this.apiKey === undefined ? undefined : "bearer",
      resources: { container: `docker_container.${this.container.friendlyUniqueId}` },
      endpoints: [
        { protocol: "embed-http", url, name: "embed-http" },
        { protocol: "metrics", url },
      ],
    };
  }
}

/** Terraform asks for it, and shows it nowhere. */
function apiKeyVariable(server: EmbedServer, id: string): TerraformVariable {
  const name = `${id.replaceAll("-", "_")}_api_key`;
  const variable = new TerraformVariable(server, "api-key", {
    type: "string",
    sensitive: true,
    nullable: false,
    description: `Bearer token of ${id}, which everybody reaches: TF_VAR_${name}, for example of 'openssl rand -hex 32'.`,
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

/** Strangers are kept out by the address that the port is published at, or by the key. */
function accessSettings(
  apiKey: TerraformVariable | undefined,
): Partial<Record<ServerEnvName, string>> {
  return apiKey === undefined ? { ALLOW_ANONYMOUS: "true" } : { API_KEY: apiKey.stringValue };
}

function serverSettings(
  engine: EmbedBackend,
  gpus: readonly GpuId[],
): Partial<Record<ServerEnvName, string>> {
  const common = {
    EXECUTION_PROVIDER: gpus.length > 0 ? "cuda" : "cpu",
    PORT: String(embedPort),
    SHUTDOWN_GRACE_SECONDS: String(graceSeconds),
  };
  return engine.kind === "onnxruntime"
    ? {
        ...common,
        BACKEND: "onnxruntime",
        MODEL_PATH: `${modelRepositoryMount}/${openclipVitB32.name}/1/model.onnx`,
      }
    : {
        ...common,
        BACKEND: "triton",
        TRITON_GRPC_URLS: engine.upstreams.map((it) => it.grpcTarget).join(","),
        TRITON_MODEL: upstreamModel(engine.upstreams),
      };
}

/** The model of the upstreams, which all serve the same one. */
function upstreamModel(upstreams: readonly TritonServer[]): string {
  return upstreams[0]?.model ?? openclipVitB32.name;
}
