import { Container } from "@cdktf/provider-docker/lib/container/index.js";
import { Construct } from "constructs";
import {
  deployedModelConfig,
  type ModelConfigSettings,
} from "../../contract/deployed-model-config.ts";
import type { Service } from "../../contract/environment.ts";
import { engineCacheMount, executionInstances } from "../../contract/model-config.ts";
import {
  type ModelName,
  openclipVitB32,
  openclipVitB32Trt,
} from "../../contract/model-signature.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import { type TritonPorts, tritonPorts } from "../../contract/ports.ts";
import { modelRepositoryMount } from "../../contract/server-env.ts";
import { renderTritonCommand, restrictModelControl } from "../../contract/triton-flags.ts";
import { TerraformStack } from "../cdktf.ts";
import { check, type Finding } from "../checks/findings.ts";
import { type GpuId, variantFor, variantGpuFindings } from "../checks/gpus.ts";
import { imageFindings, releaseFindings, tritonOptionFindings } from "../checks/images.ts";
import { exposureFindings } from "../checks/ports.ts";
import { weightsFindings } from "../checks/weights.ts";
import { exitTimeoutSeconds, tritonStartSeconds } from "../triton-times.ts";
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
import { EngineCache } from "./engine-cache.ts";
import { bindAddress, type Exposure, type GpuHost } from "./gpu-host.ts";
import { gpuRequest } from "./gpu-request.ts";
import { HealthGate } from "./health-gate.ts";
import { ModelConfiguration } from "./model-configuration.ts";
import type { ModelWeights } from "./model-weights.ts";
import type { ImageSource, ServerImage } from "./server-image.ts";

/** What runs the model; each serves a model of its own. */
export type TritonBackend = "onnxruntime" | "tensorrt";

/** What serves Triton's protocol. */
export type TritonServerKind =
  /** NVIDIA's server. */
  | { readonly kind: "tritonserver"; readonly image: ImageSource }
  /** The embed image in its place, with the same options; it computes on the CPU wherever it runs. */
  | { readonly kind: "emulator" };

/** Access to the model control API, which loads and unloads models. */
export type ModelControl =
  /** Another configuration is loaded while Triton runs; only a deployment has the key. */
  | "explicit"
  /** Another configuration is another container. */
  | "none"
  /** As `explicit`, without a key: every client may load and unload models. */
  | "open";

export interface TritonServerProps extends Omit<ModelConfigSettings, "engineCachePrefix"> {
  readonly host: GpuHost;
  readonly server: TritonServerKind;
  /** The embed image: it fills the volumes, and is what runs where the server is `emulator`. */
  readonly tools: ServerImage;
  /** What runs the model; decides which model of the repository is served. */
  readonly backend: TritonBackend;
  readonly weights: ModelWeights;
  /** @default "explicit" */
  readonly modelControl?: ModelControl;
  /** Ports of the host. */
  readonly ports: TritonPorts;
  /** GPUs of the host, by index or by UUID. Not read when the host's accelerator is `cpu`. */
  readonly gpus: readonly GpuId[];
  /** Who reaches HTTP and gRPC. Metrics stay on the loopback interface. */
  readonly expose: Exposure;
  /**
   * Whether it may be exposed although Triton asks nobody who they are.
   *
   * @default false
   */
  readonly allowUnauthenticated?: boolean;
  /**
   * Triton that is replaced first: this one keeps serving until that one is healthy.
   *
   * @default - no order
   */
  readonly after?: TritonServer;
  /**
   * Shared memory (`/dev/shm`), in MiB.
   *
   * @default 1024 - NVIDIA's advice for Triton
   */
  readonly sharedMemoryMiB?: number;
}

/** A request of 32 images as JSON text is about 95 MB; Triton's default of 64 MiB would refuse it. */
const maxRequestBytes = 128 * 1024 * 1024;

/** One Triton server, in a container, that serves one model. */
export class TritonServer extends Construct {
  /** Model name in requests. */
  readonly model: ModelName;
  /** Host name and gRPC port, as seen on the Docker network: `host:port`. */
  readonly grpcTarget: string;
  /** Passed once the container is healthy. */
  readonly ready: HealthGate;
  /** Execution instances of the model, over all GPUs. */
  readonly executionInstances: number;
  /** Time until it is ready, at most, where no engine is in the cache. */
  readonly startSeconds: number;
  /** What the environment output says of it. */
  readonly service: Service;
  /** The container itself. For what the props do not cover, use `container.addOverride()`. */
  readonly container: Container;

  constructor(scope: Construct, id: string, props: TritonServerProps) {
    super(scope, id);

    const { host, server, tools, backend, weights, ports, expose } = props;
    const { modelControl = "explicit", allowUnauthenticated = false } = props;
    const gpus = host.accelerator === "gpu" ? props.gpus : [];
    const name = `${TerraformStack.of(this).node.id}-${id}`;
    const image =
      server.kind === "emulator"
        ? tools
        : host.image("triton", server.image, weights.source === "image");
    const model = backend === "tensorrt" ? openclipVitB32Trt.name : openclipVitB32.name;
    const variant = variantFor(model, gpus);
    const compiles = backend === "tensorrt" && host.accelerator === "gpu";
    // what a compiled engine depends on, besides its shapes
    const engineOf = compiles ? [weights.version, image.version].filter((it) => it !== "") : [];
    const { config, text, problems } = deployedModelConfig(model, variant, {
      maxQueueDelayMicroseconds: props.maxQueueDelayMicroseconds,
      instancesPerGpu: props.instancesPerGpu,
      cudaGraphs: props.cudaGraphs,
      ...(backend === "tensorrt" && { optimumBatchSize: props.optimumBatchSize }),
      ...(engineOf.length > 0 && { engineCachePrefix: engineOf.join("_") }),
    });
    this.model = model;
    this.executionInstances = executionInstances(config, gpus.length);

    if (server.kind === "tritonserver") check(this, () => tritonImageFindings(server.image, host));
    const baseImage = server.kind === "tritonserver" ? nameOf(server.image) : undefined;
    if (baseImage !== undefined) host.needsDriverFor(baseImage);
    check(this, () => problems);
    check(this, () => weightsFindings(weights.source, modelControl));
    check(this, () => exposureFindings(expose, allowUnauthenticated, modelControl));
    check(this, () => variantGpuFindings(gpus, host.count, model));
    host.run(this, gpus, {
      service: id,
      backend,
      instances: Math.ceil(this.executionInstances / Math.max(1, gpus.length)),
      reloads: modelControl !== "none",
    });
    host.publish(
      this,
      (["http", "grpc", "metrics"] as const).map((port) => ({
        service: id,
        prop: `ports.${port}`,
        port: ports[port],
        expose: port === "metrics" ? "loopback" : expose,
      })),
    );

    const cache = compiles
      ? new EngineCache(this, "engine-cache", { host, container: name, service: id, image, tools })
      : undefined;
    const startSeconds = tritonStartSeconds(compiles, this.executionInstances);
    this.startSeconds = startSeconds;
    const configuration = new ModelConfiguration(this, "configuration", {
      host,
      tools,
      server: name,
      service: id,
      model,
      variant,
      text,
      versions: engineOf,
      ...(modelControl !== "none" && {
        reload: {
          url: `http://${name}:${tritonPorts.http}`,
          ...(modelControl === "explicit" && { key: host.modelControlKey }),
          timeoutSeconds: startSeconds,
          startedWith: [image.name, weights.version, weights.source, variant, ...gpus.map(String)],
        },
      }),
    });
    const request = gpuRequest(gpus);

    this.container = new Container(this, "container", {
      ...hardened,
      ...(server.kind === "emulator" && nodeProcess),
      provider:
        props.after === undefined ? host.services : host.servicesAfter(this, props.after.ready),
      name,
      image: image.imageId,
      labels: labels(this, id, {
        // a server that loads nothing anew reads its configuration when it starts
        ...(modelControl === "none" && { "model-configuration": configuration.version }),
      }),
      command: [
        ...renderTritonCommand({
          "model-repository": modelRepositoryMount,
          "model-config-name": variant,
          "http-max-input-size": maxRequestBytes,
          "model-control-mode": modelControl === "none" ? "none" : "explicit",
          ...(modelControl !== "none" && { "load-model": [model] }),
          ...(modelControl === "explicit" && restrictModelControl(host.modelControlKey)),
          "strict-readiness": true,
          "exit-on-error": true,
          "exit-timeout-secs": exitTimeoutSeconds,
          "disable-auto-complete-config": true,
        }),
      ],
      gpus: request.gpus,
      runtime: request.runtime,
      env: environmentList(request.env),
      tmpfs: tmpfs(256),
      shmSize: props.sharedMemoryMiB ?? 1024,
      ulimit: [
        // as NVIDIA advises: 64 MiB of stack, and no limit on pinned memory, which only a GPU needs
        ...(gpus.length > 0 && server.kind === "tritonserver"
          ? [{ name: "memlock", soft: -1, hard: -1 }]
          : []),
        { name: "stack", soft: 67_108_864, hard: 67_108_864 },
      ],
      networksAdvanced: [{ name: host.network.name }],
      ports: [
        { internal: tritonPorts.http, external: ports.http, ip: bindAddress(expose) },
        { internal: tritonPorts.grpc, external: ports.grpc, ip: bindAddress(expose) },
        { internal: tritonPorts.metrics, external: ports.metrics, ip: bindAddress("loopback") },
      ],
      volumes: [
        ...weights.mounts(model),
        configuration.mount,
        ...(cache === undefined
          ? []
          : [{ volumeName: cache.volume.name, containerPath: engineCacheMount }]),
      ],
      healthcheck: healthcheck(readyTest[server.kind], startSeconds),
      ...stopAfter(exitTimeoutSeconds),
    });

    checkStopTimes(this.container, exitTimeoutSeconds);
    this.ready = new HealthGate(this, "ready", {
      container: this.container,
      docker: host.docker,
      command: host.command,
      timeoutSeconds: verdictSeconds(startSeconds),
    });

    this.grpcTarget = `${name}:${tritonPorts.grpc}`;
    const address = host.clientAddress(expose);
    const path = backend === "tensorrt" ? "trt" : "onnx";
    this.service = {
      name: id,
      kind: "triton",
      backend,
      server: server.kind,
      model: this.model,
      resources: { container: `docker_container.${this.container.friendlyUniqueId}` },
      endpoints: [
        { protocol: "oip-http", url: `http://${address}:${ports.http}`, name: `${path}-http` },
        { protocol: "oip-grpc", url: `${address}:${ports.grpc}`, name: `${path}-grpc` },
        { protocol: "metrics", url: `http://127.0.0.1:${ports.metrics}` },
      ],
    };
  }
}

const readyUrl = `http://127.0.0.1:${tritonPorts.http}${oipPaths.ready}`;

/** What each image really has to ask with. */
const readyTest: Readonly<Record<TritonServerKind["kind"], readonly string[]>> = {
  tritonserver: ["CMD", "curl", "-fsS", readyUrl],
  emulator: healthcheckOf(readyUrl),
};

/** Of an image that is built, its base is what knows the GPU. */
function nameOf(source: ImageSource): string | undefined {
  return source.source === "pull" ? source.name : source.buildArgs?.TRITON_IMAGE;
}

function tritonImageFindings(source: ImageSource, host: GpuHost): readonly Finding[] {
  const name = nameOf(source);
  if (name === undefined) return [];
  const findings = [
    ...imageFindings(name),
    ...tritonOptionFindings(name),
    ...(host.accelerator === "gpu" ? releaseFindings(name, host.gpu) : []),
  ];
  const prop = source.source === "pull" ? "image" : "image.buildArgs.TRITON_IMAGE";
  return findings.map((finding) => finding.replace(/^image /, `${prop} `));
}
