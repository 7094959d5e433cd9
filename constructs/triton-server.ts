import { Container } from "@cdktf/provider-docker/lib/container/index.js";
import { Image } from "@cdktf/provider-docker/lib/image/index.js";
import { Construct } from "constructs";
import type { Service } from "../inference-image/src/contract/environment.ts";
import {
  engineCacheMount,
  executionInstances,
  modelConfigs,
} from "../inference-image/src/contract/model-config.ts";
import { checkModelConfig } from "../inference-image/src/contract/model-config-check.ts";
import {
  type ModelName,
  openclipVitB32,
  openclipVitB32Trt,
} from "../inference-image/src/contract/model-signature.ts";
import { oipPaths } from "../inference-image/src/contract/oip-paths.ts";
import { type TritonPorts, tritonPorts } from "../inference-image/src/contract/ports.ts";
import { modelRepositoryMount } from "../inference-image/src/contract/server-env.ts";
import { renderTritonCommand } from "../inference-image/src/contract/triton-flags.ts";
import { TerraformStack } from "./cdktf.ts";
import { check } from "./checks/findings.ts";
import { variantFor, variantGpuFindings } from "./checks/gpus.ts";
import { imageFindings, releaseFindings } from "./checks/images.ts";
import {
  checkStopTimes,
  environmentList,
  hardened,
  stopAfter,
  tmpfs,
  waitUntilHealthy,
} from "./container-defaults.ts";
import { EngineCache } from "./engine-cache.ts";
import { bindAddress, type Exposure, type GpuHost } from "./gpu-host.ts";
import { gpuRequest } from "./gpu-request.ts";

/** What runs the model; each serves a model of its own. */
export type TritonBackend = "onnx" | "tensorrt";

export interface TritonServerProps {
  readonly host: GpuHost;
  /** Image with a version: `nvcr.io/nvidia/tritonserver:26.07-py3`, or better by digest. */
  readonly image: string;
  /** What runs the model; decides which model of the repository is served. */
  readonly backend: TritonBackend;
  /** Model repository: absolute on the host, or relative to the project when Docker is local. */
  readonly modelRepository: string;
  /** Ports of the host. */
  readonly ports: TritonPorts;
  /** GPUs of the host, by index. Not read when the host's accelerator is `cpu`. */
  readonly gpus: readonly number[];
  /** Who reaches HTTP and gRPC. Metrics stay on the loopback interface. */
  readonly expose: Exposure;
  /**
   * Shared memory (`/dev/shm`), in MiB.
   *
   * @default 1024 - NVIDIA's advice for Triton
   */
  readonly sharedMemoryMiB?: number;
}

/** Requests in flight may take this long when Triton stops: `--exit-timeout-secs`. */
const exitTimeoutSeconds = 30;

/** Time to load a model into an execution provider that compiles nothing. */
const loadSeconds = 120;

/**
 * Time to build one TensorRT engine on a cold cache: 2-5 minutes were measured on an RTX A4000, 56 s on an A100. Every
 * execution instance builds its own (onnxruntime_backend#66).
 */
const engineBuildSeconds = 300;

/** A request of 32 images as JSON text is about 95 MB; Triton's default of 64 MiB would refuse it. */
const maxRequestBytes = 128 * 1024 * 1024;

/** One Triton server, in a container, that serves one model. */
export class TritonServer extends Construct {
  /** Model name in requests. */
  readonly model: ModelName;
  /** Host name and gRPC port, as seen on the Docker network: `host:port`. */
  readonly grpcTarget: string;
  /** Execution instances of the model, over all GPUs. */
  readonly executionInstances: number;
  /** What the environment output says of it. */
  readonly service: Service;
  /** The container itself. For what the props do not cover, use `container.addOverride()`. */
  readonly container: Container;

  constructor(scope: Construct, id: string, props: TritonServerProps) {
    super(scope, id);

    const { host, backend, ports, expose } = props;
    const gpus = host.accelerator === "gpu" ? props.gpus : [];
    const model = backend === "tensorrt" ? openclipVitB32Trt.name : openclipVitB32.name;
    const variant = variantFor(model, gpus);
    const config = modelConfigs[model][variant];
    this.model = model;
    this.executionInstances = executionInstances(config, gpus.length);

    check(this, () => imageFindings(props.image));
    if (host.accelerator === "gpu") check(this, () => releaseFindings(props.image, host.gpu));
    check(this, () => checkModelConfig(config));
    check(this, () => variantGpuFindings(gpus, host.count, model));
    host.run(this, gpus, {
      service: id,
      backend,
      instances: Math.ceil(this.executionInstances / Math.max(1, gpus.length)),
    });
    host.publish(
      this,
      (["http", "grpc", "metrics"] as const).map((name) => ({
        service: id,
        prop: `ports.${name}`,
        port: ports[name],
      })),
    );

    const name = `${TerraformStack.of(this).node.id}-${id}`;
    const image = new Image(this, "image", { name: props.image, keepLocally: true });
    const cache =
      backend === "tensorrt" && host.accelerator === "gpu"
        ? new EngineCache(this, "engine-cache", {
            container: name,
            image: props.image,
            imageId: image.imageId,
            computeCapability: host.gpu.computeCapability,
          })
        : undefined;
    const request = gpuRequest(gpus);

    this.container = new Container(this, "container", {
      ...hardened,
      name,
      image: image.imageId,
      command: [
        ...renderTritonCommand({
          "model-repository": modelRepositoryMount,
          "model-config-name": variant,
          "http-max-input-size": maxRequestBytes,
          "model-control-mode": "none",
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
        ...(gpus.length > 0 ? [{ name: "memlock", soft: -1, hard: -1 }] : []),
        { name: "stack", soft: 67_108_864, hard: 67_108_864 },
      ],
      networksAdvanced: [{ name: host.network.name }],
      ports: [
        { internal: tritonPorts.http, external: ports.http, ip: bindAddress(expose) },
        { internal: tritonPorts.grpc, external: ports.grpc, ip: bindAddress(expose) },
        { internal: tritonPorts.metrics, external: ports.metrics, ip: bindAddress("loopback") },
      ],
      volumes: [
        ...modelMounts(host, props.modelRepository, this.model),
        ...(cache === undefined
          ? []
          : [{ volumeName: cache.volume.name, containerPath: engineCacheMount }]),
      ],
      ...waitUntilHealthy(
        ["CMD", "curl", "-fsS", `http://localhost:${tritonPorts.http}${oipPaths.ready}`],
        cache === undefined
          ? loadSeconds
          : loadSeconds + this.executionInstances * engineBuildSeconds,
      ),
      ...stopAfter(exitTimeoutSeconds),
      dependsOn: cache === undefined ? undefined : [cache.owner],
    });

    checkStopTimes(this.container, exitTimeoutSeconds);

    this.grpcTarget = `${name}:${tritonPorts.grpc}`;
    const address = host.clientAddress(expose);
    const path = backend === "tensorrt" ? "trt" : "onnx";
    this.service = {
      name: id,
      kind: "triton",
      backend,
      model: this.model,
      resources: { container: `docker_container.${this.container.friendlyUniqueId}` },
      endpoints: [
        { protocol: "oip-http", url: `http://${address}:${ports.http}`, path: `${path}-http` },
        { protocol: "oip-grpc", url: `${address}:${ports.grpc}`, path: `${path}-grpc` },
        { protocol: "metrics", url: `http://127.0.0.1:${ports.metrics}` },
      ],
    };
  }
}

/**
 * The folder of one model, and nothing else: with `--model-control-mode=none` Triton loads whatever lies in its
 * repository. Both models run the same file, which lies with the first one.
 */
function modelMounts(host: GpuHost, repository: string, model: string) {
  const mount = (from: string, to: string) => ({
    hostPath: host.path(`${repository}/${from}`),
    containerPath: `${modelRepositoryMount}/${to}`,
    readOnly: true,
  });
  return model === openclipVitB32.name
    ? [mount(model, model)]
    : [mount(model, model), mount(`${openclipVitB32.name}/1`, `${model}/1`)];
}
