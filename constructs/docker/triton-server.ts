import { Container } from "@cdktf/provider-docker/lib/container/index.js";
import { Construct } from "constructs";
import { z } from "zod";
import {
  type backendKinds,
  type DeployedModelConfig,
  deployedModelConfig,
  type ModelConfigSettings,
} from "../../contract/deployed-model-config.ts";
import type { Service } from "../../contract/environment.ts";
import { preprocessingSha256 } from "../../contract/fingerprint.ts";
import { deployedConfigName, executionInstances } from "../../contract/model-config.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { hostPorts, type TritonPorts, tritonPorts } from "../../contract/ports.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import { type daliModels, tritonModelName } from "../../contract/triton-models.ts";
import { type PrecisionSource, precisionSourceOf } from "../../contract/triton-releases.ts";
import {
  heapMiB,
  limitsOf,
  memoryLimitFindings,
  type TritonMemory,
  tritonMemoryMiB,
} from "../checks/container-limits.ts";
import { check, type Finding } from "../checks/findings.ts";
import type { GpuId } from "../checks/gpus.ts";
import {
  daliFindings,
  imageFindings,
  releaseFindings,
  tritonOptionFindings,
} from "../checks/images.ts";
import { exposureFindings } from "../checks/ports.ts";
import { exposure, gpuId, memoryLimitMiB, port } from "../checks/prop-types.ts";
import { checkedProps } from "../checks/props.ts";
import { u8FileFindings, weightsFindings } from "../checks/weights.ts";
import {
  type FileKind,
  type ServedTower,
  towerKind,
  towerSuffix,
} from "../models/served-towers.ts";
import { exitTimeoutSeconds, tritonStartSeconds } from "../models/triton-times.ts";
import { addressOf } from "../terraform/cdktf.ts";
import { nameInStack, objectName } from "../terraform/names.ts";
import { checkStopTimes, labels, verdictSeconds } from "./container-defaults.ts";
import { DaliModels, type JpegDecoder, jpegKind } from "./dali-models.ts";
import { EngineCache } from "./engine-cache.ts";
import type { Exposure, GpuHost } from "./gpu-host.ts";
import { HealthGate } from "./health-gate.ts";
import { ModelConfiguration, type ModelConfigurationProps } from "./model-configuration.ts";
import type { ModelWeights, TowerWeights } from "./model-weights.ts";
import type { ImageSource, ServerImage } from "./server-image.ts";
import {
  type Allocator,
  type ModelControl,
  maxRequestBytes,
  tritonContainer,
  tritonTmpMiB,
} from "./triton-container.ts";

/** Backend that executes the models in Triton. */
export type TritonBackend = keyof typeof backendKinds;

/** Server that speaks Triton's protocols. */
export type TritonServerKind =
  /** NVIDIA's Triton. */
  | { readonly kind: "tritonserver"; readonly image: ImageSource }
  /** Triton emulator of the embed image, with the same options. It always runs on the CPU. */
  | { readonly kind: "emulator" };

export interface TritonServerProps
  extends Omit<ModelConfigSettings, "engineCachePrefix" | "precision" | "weightsSha256"> {
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
  /**
   * Memory limit in MiB.
   *
   * @default - from the models and the largest requests
   */
  readonly memoryMiB?: number;
  /** @default "glibc" */
  readonly allocator?: Allocator;
}

/** Model of the repository with its configuration. */
interface ServedModel {
  readonly tower: ServedTower;
  /** Folder in the model repository and name in requests. */
  readonly name: string;
  /** Versions on which a compiled engine depends. */
  readonly engineVersions: readonly string[];
  readonly deployed: DeployedModelConfig;
}

const tritonFields = {
  backend: z.enum(["onnxruntime", "tensorrt"]),
  modelControl: z.enum(["explicit", "none", "open"]).optional(),
  jpegDecoder: z.enum(["none", "dali"]).optional(),
  ports: z.strictObject({ http: port, grpc: port, metrics: port }),
  gpus: z.array(gpuId).optional(),
  expose: exposure.optional(),
  memoryMiB: memoryLimitMiB.optional(),
  allocator: z.enum(["glibc", "tcmalloc", "jemalloc"]).optional(),
};
const tritonStandIns = { backend: "onnxruntime", ports: hostPorts.tritonOnnx } as const;

/** Triton in a container. */
export class TritonServer extends Construct {
  /** Model kind of the image towers. */
  readonly modelKind: FileKind;
  /** Model kind of the ensembles that accept JPEG files; absent without a decoder. */
  readonly jpegKind: keyof typeof daliModels | undefined;
  /** Host name and gRPC port on the Docker network: `host:port`. */
  readonly grpcTarget: string;
  /** Passed once the container is healthy. */
  readonly ready: HealthGate;
  /** Number of execution instances of all models, over all GPUs. */
  readonly executionInstances: number;
  /** Maximum time until ready, with an empty engine cache. */
  readonly startSeconds: number;
  /** Entry of the environment output. */
  readonly service: Service;
  /** Specs of the served models; the first is the default. */
  readonly models: readonly ModelSpec[];
  readonly weights: ModelWeights;
  readonly #towers: readonly TowerWeights[];
  /** Underlying container. For anything the props do not cover, use `container.addOverride()`. */
  readonly container: Container;

  constructor(scope: Construct, id: string, given: TritonServerProps) {
    super(scope, id);

    const props = checkedProps(this, given, tritonFields, tritonStandIns);
    const { host, server, tools, weights, ports, modelControl = "explicit" } = props;
    const { expose = "loopback" } = props;
    const service = nameInStack(this);
    const name = objectName(this);
    const gpus = host.accelerator === "gpu" ? (props.gpus ?? host.gpus) : [];
    const image = server.kind === "emulator" ? tools : host.image("triton", server.image);
    const compiles = props.backend === "tensorrt" && host.accelerator === "gpu";
    const precision = precisionSourceOf(
      server.kind === "tritonserver" ? baseImageOf(server.image) : undefined,
    );
    const towers =
      compiles && precision !== "precision-mode" ? weights.tensorrtTowers : weights.towers;
    const served = towers.map((tower) => servedModel(tower, { props, gpus, image, precision }));
    this.#towers = towers;
    this.weights = weights;
    this.models = weights.models;
    this.modelKind = imageKind(props);
    this.jpegKind = jpegKind(props.backend, props.jpegDecoder);
    const instances = served.map(({ deployed }) =>
      executionInstances(deployed.config, gpus.length),
    );
    this.executionInstances = instances.reduce((sum, count) => sum + count, 0);
    this.startSeconds = tritonStartSeconds(compiles, this.executionInstances);
    this.#addChecks(props, served);
    this.#recordUse(props, service, { gpus, instances: Math.max(...instances) });

    const cache = compiles
      ? new EngineCache(this, "engine-cache", {
          host,
          container: name,
          service,
          models: served.length,
          image,
          tools,
        })
      : undefined;
    const hasVersions = props.modelVersions !== undefined && weights.source !== "image";
    const versions = hasVersions ? weights.versionMounts(this.modelKind) : [];
    const versionsOf = ({ name }: ServedModel) =>
      versions.find((mount) => mount.containerPath === `${modelRepositoryMount}/${name}`)
        ?.volumeName;
    const configurations = served.map((model, index) =>
      this.#addConfiguration(
        props,
        model,
        { ...weights.towers[index]!, versions: versionsOf(model) },
        { image, gpus },
      ),
    );
    const dali = this.#addDali(props, { image, gpus });
    configurations.push(...(dali?.configurations ?? []));
    this.container = new Container(this, "container", {
      ...tritonContainer({
        server: server.kind,
        models: [...served.map((model) => model.name), ...(dali?.names ?? [])],
        pipelines: dali?.mounts ?? [],
        served: this.modelKind,
        modelControl,
        modelControlKey: () => host.modelControlKey,
        gpus,
        ports,
        expose,
        weights,
        towers,
        configurations,
        hasVersions,
        cache,
        sharedMemoryMiB: props.sharedMemoryMiB ?? 1024,
        allocator: props.allocator ?? "glibc",
        limits: this.#limits(props, { gpus, instances: Math.max(...instances), compiles }),
        startSeconds: this.startSeconds,
      }),
      provider:
        props.after === undefined ? host.services : host.servicesAfter(this, props.after.ready),
      name,
      image: image.imageId,
      labels: labels(this, service, {
        // without model control, a changed configuration must replace the container
        ...(modelControl === "none" && {
          "model-configuration": configurations.map(({ version }) => version).join(" "),
        }),
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
    props: TritonServerProps,
    { tower, name, deployed, engineVersions }: ServedModel,
    { mount, filledBy, versions }: TowerWeights & { readonly versions: string | undefined },
    layout: Layout,
  ): ModelConfiguration {
    const { host, tools } = props;
    const server = objectName(this);
    const suffix = towerSuffix(tower);
    return new ModelConfiguration(this, `configuration${suffix}`, {
      host,
      tools,
      volume: `${server}-config${suffix}`,
      service: `${nameInStack(this)}${suffix}`,
      model: name,
      text: deployed.text,
      versions: engineVersions,
      ...(mount !== undefined && {
        towerWeights: {
          mount,
          filledBy,
          preprocessing: preprocessingSha256(tower.spec, tower.modality),
          versions,
        },
      }),
      ...this.#reloadOf(props, layout),
    });
  }

  #reloadOf(
    { host, weights, modelControl = "explicit" }: TritonServerProps,
    { image, gpus }: Layout,
  ): Pick<ModelConfigurationProps, "reload"> {
    if (modelControl === "none") return {};
    const versions = this.#towers.map(({ version }) => version);
    return {
      reload: {
        url: `http://${objectName(this)}:${tritonPorts.http}`,
        ...(modelControl === "explicit" && { key: host.modelControlKey }),
        timeoutSeconds: this.startSeconds,
        startedWith: [
          image.name,
          ...versions,
          weights.source,
          deployedConfigName,
          ...gpus.map(String),
        ],
      },
    };
  }

  #addDali(props: TritonServerProps, layout: Layout): DaliModels | undefined {
    if (this.jpegKind === undefined || props.weights.source === "image") return undefined;
    const { host, tools, weights } = props;
    return new DaliModels(this, "dali", {
      ...{ host, tools, weights },
      server: objectName(this),
      service: nameInStack(this),
      gpus: layout.gpus.length,
      ensemble: this.jpegKind,
      ...this.#reloadOf(props, layout),
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
      models: this.models.map(({ name }) => name),
      modelKind: this.modelKind,
      ...(this.jpegKind !== undefined && { jpegKind: this.jpegKind }),
      resources: { container: addressOf(this.container) },
      endpoints: endpoints(backend, host.clientAddress(expose), ports),
    };
  }

  #addChecks(props: TritonServerProps, served: readonly ServedModel[]): void {
    const { host, server, weights, modelControl = "explicit", expose = "loopback" } = props;
    if (server.kind === "tritonserver") check(this, () => tritonImageFindings(server.image, host));
    if (this.jpegKind !== undefined) {
      const image = server.kind === "tritonserver" ? baseImageOf(server.image) : undefined;
      check(this, () => daliFindings(weights.source, image));
    }
    check(this, () => configurationProblems(served));
    check(this, () => weightsFindings(weights.source, modelControl, props.modelVersions));
    check(this, () =>
      u8FileFindings("weights.modelKind", weights.modelKind, [
        ["backend", props.backend, "onnxruntime"],
      ]),
    );
    check(this, () => exposureFindings(expose, props.allowUnauthenticated ?? false, modelControl));
  }

  #limits(
    { host, server, sharedMemoryMiB = 1024, memoryMiB, modelVersions: versions }: TritonServerProps,
    use: Pick<TritonMemory, "instances" | "compiles"> & { readonly gpus: readonly GpuId[] },
  ) {
    const limit =
      memoryMiB ??
      tritonMemoryMiB({
        ...use,
        versions,
        gpus: use.gpus.length,
        models: this.models,
        decodes: this.jpegKind !== undefined,
        requestBytes: maxRequestBytes,
        sharedMiB: sharedMemoryMiB + tritonTmpMiB + (server.kind === "emulator" ? heapMiB : 0),
      });
    check(this, () => memoryLimitFindings(limit, this.models));
    host.requireMemory({ service: nameInStack(this), miB: limit });
    return limitsOf("triton", limit, host.cores);
  }

  /** Records the driver, GPUs and ports that this server requires of its host. */
  #recordUse(
    props: TritonServerProps,
    service: string,
    { gpus, instances }: { readonly gpus: readonly GpuId[]; readonly instances: number },
  ): void {
    const { host, server, ports, expose = "loopback" } = props;
    const baseImage = server.kind === "tritonserver" ? baseImageOf(server.image) : undefined;
    if (baseImage !== undefined) host.requireDriver(baseImage);
    host.useGpus(this, gpus, {
      service,
      backend: props.backend,
      instances: Math.ceil(instances / Math.max(1, gpus.length)),
      models: this.models,
      ...(this.jpegKind !== undefined && { decodes: true }),
      ...(props.modelVersions !== undefined && { versions: props.modelVersions }),
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

type Layout = Pick<Context, "image" | "gpus">;

interface Context {
  readonly props: TritonServerProps;
  readonly gpus: readonly GpuId[];
  readonly image: ServerImage;
  readonly precision: PrecisionSource;
}

function imageKind({ backend, weights }: TritonServerProps): FileKind {
  return backend === "tensorrt" ? "trt" : weights.modelKind;
}

function servedModel(
  { tower, version }: TowerWeights,
  { props, gpus, image, precision }: Context,
): ServedModel {
  const { host, backend } = props;
  const tensorrt = backend === "tensorrt";
  const compiles = tensorrt && host.accelerator === "gpu";
  const modelKind = towerKind(tower, imageKind(props));
  const engineVersions = compiles ? [version, image.version].filter((each) => each !== "") : [];
  const deployed = deployedModelConfig({ spec: tower.spec, modelKind }, gpus.length, {
    maxQueueDelayMicroseconds: props.maxQueueDelayMicroseconds,
    preferredBatchSizes: props.preferredBatchSizes,
    instancesPerGpu: props.instancesPerGpu,
    cudaGraphs: props.cudaGraphs,
    modelVersions: props.modelVersions,
    precision,
    ...(tensorrt && { optimumBatchSize: props.optimumBatchSize }),
    ...(engineVersions.length > 0 && { engineCachePrefix: engineVersions.join("_") }),
  });
  return { tower, name: tritonModelName(tower.spec, modelKind), engineVersions, deployed };
}

/** Errors of the configurations of all models; the same setting is wrong for all of them. */
function configurationProblems(served: readonly ServedModel[]): readonly string[] {
  return [...new Set(served.flatMap(({ deployed }) => deployed.problems))];
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
