import { Container } from "@cdktf/provider-docker/lib/container/index.js";
import { Construct } from "constructs";
import {
  type DeployedModelConfig,
  deployedModelConfig,
  type ModelConfigSettings,
  shippedModels,
  type TunableModel,
} from "../../contract/deployed-model-config.ts";
import type { Service } from "../../contract/environment.ts";
import { executionInstances, type ModelVariant } from "../../contract/model-config.ts";
import { type TritonPorts, tritonPorts } from "../../contract/ports.ts";
import { addressOf } from "../cdktf.ts";
import { check, type Finding } from "../checks/findings.ts";
import { type GpuId, variantFor, variantGpuFindings } from "../checks/gpus.ts";
import { imageFindings, releaseFindings, tritonOptionFindings } from "../checks/images.ts";
import { exposureFindings } from "../checks/ports.ts";
import { weightsFindings } from "../checks/weights.ts";
import { nameInStack, objectName } from "../names.ts";
import { exitTimeoutSeconds, tritonStartSeconds } from "../triton-times.ts";
import { checkStopTimes, labels, verdictSeconds } from "./container-defaults.ts";
import { EngineCache } from "./engine-cache.ts";
import type { Exposure, GpuHost } from "./gpu-host.ts";
import { HealthGate } from "./health-gate.ts";
import { ModelConfiguration } from "./model-configuration.ts";
import type { ModelWeights } from "./model-weights.ts";
import type { ImageSource, ServerImage } from "./server-image.ts";
import { type ModelControl, tritonContainer } from "./triton-container.ts";

/** Backend that executes the model in Triton. */
export type TritonBackend = keyof typeof shippedModels;

/** Server that speaks Triton's protocols. */
export type TritonServerKind =
  /** NVIDIA's Triton. */
  | { readonly kind: "tritonserver"; readonly image: ImageSource }
  /** Triton emulator of the embed image, with the same options. It always runs on the CPU. */
  | { readonly kind: "emulator" };

export interface TritonServerProps extends Omit<ModelConfigSettings, "engineCachePrefix"> {
  readonly host: GpuHost;
  readonly server: TritonServerKind;
  /** Embed image, which fills the volumes and contains the emulator. */
  readonly tools: ServerImage;
  readonly backend: TritonBackend;
  /**
   * Model of the repository to serve.
   *
   * @default - openclip_vit_b32, or openclip_vit_b32_trt for the backend `tensorrt`
   */
  readonly model?: TunableModel;
  readonly weights: ModelWeights;
  /** @default "explicit" */
  readonly modelControl?: ModelControl;
  /** Host ports. */
  readonly ports: TritonPorts;
  /** GPUs of the host, by index or by UUID. Ignored if the host's accelerator is `cpu`. */
  readonly gpus: readonly GpuId[];
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
   * Triton that is replaced first. This one keeps serving until that one is healthy.
   *
   * @default - no order
   */
  readonly after?: TritonServer;
  /**
   * Shared memory (`/dev/shm`), in MiB.
   *
   * @default 1024 - NVIDIA's recommendation
   */
  readonly sharedMemoryMiB?: number;
}

/** Model and configuration that follow from the props. */
interface ServedModel {
  readonly model: TunableModel;
  readonly variant: ModelVariant;
  /** Whether TensorRT compiles engines at start. */
  readonly compiles: boolean;
  /** Versions on which a compiled engine depends. */
  readonly engineVersions: readonly string[];
  readonly deployed: DeployedModelConfig;
}

/** Triton in a container, serving one model. */
export class TritonServer extends Construct {
  /** Model name in requests. */
  readonly model: TunableModel;
  /** Host name and gRPC port on the Docker network: `host:port`. */
  readonly grpcTarget: string;
  /** Passed once the container is healthy. */
  readonly ready: HealthGate;
  /** Number of execution instances of the model, over all GPUs. */
  readonly executionInstances: number;
  /** Maximum time until ready, with an empty engine cache. */
  readonly startSeconds: number;
  /** Entry of the environment output. */
  readonly service: Service;
  /** Underlying container. For anything the props do not cover, use `container.addOverride()`. */
  readonly container: Container;

  constructor(scope: Construct, id: string, props: TritonServerProps) {
    super(scope, id);

    const { host, server, tools, weights, ports, modelControl = "explicit" } = props;
    const { expose = "loopback" } = props;
    const service = nameInStack(this);
    const name = objectName(this);
    const gpus = host.accelerator === "gpu" ? props.gpus : [];
    const image = server.kind === "emulator" ? tools : host.image("triton", server.image);
    const served = servedModel(props, gpus, image);
    const { model, variant, compiles, deployed } = served;
    this.model = model;
    this.executionInstances = executionInstances(deployed.config, gpus.length);
    this.startSeconds = tritonStartSeconds(compiles, this.executionInstances);
    this.#addChecks(props, gpus, deployed.problems);
    this.#recordUse(props, service, gpus);

    const cache = compiles
      ? new EngineCache(this, "engine-cache", { host, container: name, service, image, tools })
      : undefined;
    const configuration = this.#addConfiguration(props, served, image, gpus);
    this.container = new Container(this, "container", {
      ...tritonContainer({
        server: server.kind,
        model,
        variant,
        modelControl,
        modelControlKey: () => host.modelControlKey,
        gpus,
        ports,
        expose,
        weights,
        configuration,
        cache,
        sharedMemoryMiB: props.sharedMemoryMiB ?? 1024,
        startSeconds: this.startSeconds,
      }),
      provider:
        props.after === undefined ? host.services : host.servicesAfter(this, props.after.ready),
      name,
      image: image.imageId,
      labels: labels(this, service, {
        // without model control, a changed configuration must replace the container
        ...(modelControl === "none" && { "model-configuration": configuration.version }),
      }),
      networksAdvanced: [{ name: host.network.name }],
    });
    checkStopTimes(this.container, exitTimeoutSeconds);
    this.ready = new HealthGate(this, "ready", {
      container: this.container,
      docker: host.docker,
      command: host.command,
      timeoutSeconds: verdictSeconds(this.startSeconds),
    });
    this.grpcTarget = `${name}:${tritonPorts.grpc}`;
    this.service = this.#environmentEntry(props);
  }

  #addConfiguration(
    { host, tools, weights, modelControl = "explicit" }: TritonServerProps,
    { model, variant, deployed, engineVersions }: ServedModel,
    image: ServerImage,
    gpus: readonly GpuId[],
  ): ModelConfiguration {
    const server = objectName(this);
    return new ModelConfiguration(this, "configuration", {
      host,
      tools,
      server,
      service: nameInStack(this),
      model,
      variant,
      text: deployed.text,
      versions: engineVersions,
      ...(modelControl !== "none" && {
        reload: {
          url: `http://${server}:${tritonPorts.http}`,
          ...(modelControl === "explicit" && { key: host.modelControlKey }),
          timeoutSeconds: this.startSeconds,
          startedWith: [image.name, weights.version, weights.source, variant, ...gpus.map(String)],
        },
      }),
    });
  }

  #environmentEntry({
    host,
    server,
    backend,
    ports,
    expose = "loopback",
  }: TritonServerProps): Service {
    return {
      name: nameInStack(this),
      kind: "triton",
      backend,
      server: server.kind,
      model: this.model,
      resources: { container: addressOf(this.container) },
      endpoints: endpoints(backend, host.clientAddress(expose), ports),
    };
  }

  #addChecks(
    props: TritonServerProps,
    gpus: readonly GpuId[],
    configurationProblems: DeployedModelConfig["problems"],
  ): void {
    const { host, server, weights, modelControl = "explicit", expose = "loopback" } = props;
    if (server.kind === "tritonserver") check(this, () => tritonImageFindings(server.image, host));
    check(this, () => configurationProblems);
    check(this, () => weightsFindings(weights.source, modelControl));
    check(this, () => exposureFindings(expose, props.allowUnauthenticated ?? false, modelControl));
    check(this, () => variantGpuFindings(gpus, host.count, this.model));
  }

  /** Records the driver, GPUs and ports that this server requires of its host. */
  #recordUse(props: TritonServerProps, service: string, gpus: readonly GpuId[]): void {
    const { host, server, ports, expose = "loopback" } = props;
    const baseImage = server.kind === "tritonserver" ? baseImageOf(server.image) : undefined;
    if (baseImage !== undefined) host.requireDriver(baseImage);
    host.useGpus(this, gpus, {
      service,
      backend: props.backend,
      instances: Math.ceil(this.executionInstances / Math.max(1, gpus.length)),
      reloads: props.modelControl !== "none",
    });
    host.publish(
      this,
      (["http", "grpc", "metrics"] as const).map((port) => ({
        service,
        prop: `ports.${port}`,
        port: ports[port],
        expose: port === "metrics" ? "loopback" : expose,
      })),
    );
  }
}

function servedModel(
  props: TritonServerProps,
  gpus: readonly GpuId[],
  image: ServerImage,
): ServedModel {
  const { host, backend, weights } = props;
  const tensorrt = backend === "tensorrt";
  const model = props.model ?? shippedModels[backend];
  const variant = variantFor(model, gpus);
  const compiles = tensorrt && host.accelerator === "gpu";
  const engineVersions = compiles
    ? [weights.version, image.version].filter((version) => version !== "")
    : [];
  const deployed = deployedModelConfig(model, variant, {
    maxQueueDelayMicroseconds: props.maxQueueDelayMicroseconds,
    instancesPerGpu: props.instancesPerGpu,
    cudaGraphs: props.cudaGraphs,
    ...(tensorrt && { optimumBatchSize: props.optimumBatchSize }),
    ...(engineVersions.length > 0 && { engineCachePrefix: engineVersions.join("_") }),
  });
  return { model, variant, compiles, engineVersions, deployed };
}

function endpoints(
  backend: TritonBackend,
  address: string,
  ports: TritonPorts,
): Service["endpoints"] {
  const prefix = backend === "tensorrt" ? "trt" : "onnx";
  return [
    { protocol: "oip-http", url: `http://${address}:${ports.http}`, name: `${prefix}-http` },
    { protocol: "oip-grpc", url: `${address}:${ports.grpc}`, name: `${prefix}-grpc` },
    { protocol: "metrics", url: `http://127.0.0.1:${ports.metrics}` },
  ];
}

/** Name of the Triton image, or of the base image of a build. */
function baseImageOf(source: ImageSource): string | undefined {
  return source.source === "pull" ? source.name : source.buildArgs?.TRITON_IMAGE;
}

function tritonImageFindings(source: ImageSource, host: GpuHost): readonly Finding[] {
  const name = baseImageOf(source);
  if (name === undefined) return [];
  const path = source.source === "pull" ? "image" : "image.buildArgs.TRITON_IMAGE";
  return [
    ...imageFindings(name, path),
    ...tritonOptionFindings(name, path),
    ...(host.accelerator === "gpu" ? releaseFindings(name, host.gpu, path) : []),
  ];
}
