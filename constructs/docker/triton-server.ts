import { Construct } from "constructs";
import type { Container } from "#providers/docker/lib/container/index.js";
import type { Service } from "../../contract/environment.ts";
import { preprocessingSha256 } from "../../contract/fingerprint.ts";
import { deployedConfigName } from "../../contract/model-config.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { tritonPorts } from "../../contract/ports.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import type { daliModels } from "../../contract/triton-models.ts";
import { limitsOf } from "../checks/container-limits.ts";
import { check } from "../checks/findings.ts";
import { checkedProps } from "../checks/props.ts";
import { type FileKind, towerSuffix } from "../models/served-towers.ts";
import { addressOf } from "../terraform/cdktf.ts";
import { nameInStack, objectName } from "../terraform/names.ts";
import { labels, plaintextLabels } from "./container-defaults.ts";
import { DaliModels } from "./dali-models.ts";
import { EngineCache } from "./engine-cache.ts";
import type { HealthGate } from "./health-gate.ts";
import { ModelConfiguration, type ModelConfigurationProps } from "./model-configuration.ts";
import type { ModelWeights } from "./model-weights.ts";
import { serverContainer } from "./server-container.ts";
import type { ServerImage } from "./server-image.ts";
import { tritonContainer } from "./triton-container.ts";
import {
  type TritonPlan,
  type TritonServerProps,
  tlsRoutes,
  tritonFields,
  tritonPlan,
  tritonStandIns,
} from "./triton-plan.ts";

/** Triton server in a container. */
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
  /** Underlying container. For anything the props do not cover, use `container.addOverride()`. */
  readonly container: Container;
  /** Name and number of execution instances, for one line about the stack. */
  readonly summary: string;

  constructor(scope: Construct, id: string, given: TritonServerProps) {
    super(scope, id);

    const props = checkedProps(this, given, tritonFields, tritonStandIns);
    const { host, server, tools, weights, modelControl = "explicit" } = props;
    const service = nameInStack(this);
    const name = objectName(this);
    const image = server.kind === "emulator" ? tools : host.image("triton", server.image);
    const plan = tritonPlan(props, service, image);
    this.weights = weights;
    this.models = weights.models;
    this.modelKind = plan.modelKind;
    this.jpegKind = plan.jpegKind;
    this.startSeconds = plan.startSeconds;
    this.executionInstances = plan.executionInstances;
    const plural = plan.executionInstances === 1 ? "" : "s";
    this.summary = `${id} (${plan.executionInstances} execution instance${plural})`;
    check(this, () => plan.findings);
    host.require(plan.use, this);

    const cache = plan.compiles
      ? new EngineCache(this, "engine-cache", {
          ...{ host, service, image, tools },
          container: name,
          models: plan.served.length,
        })
      : undefined;
    const reload = this.#reloadOf(props, plan, image);
    const configurations = this.#addConfigurations(props, plan, reload);
    const dali = this.#addDali(props, plan, reload);
    configurations.push(...(dali?.configurations ?? []));
    const { container, ready } = serverContainer(this, host, {
      ...tritonContainer(props, plan, {
        models: [...plan.served.map((model) => model.name), ...(dali?.names ?? [])],
        pipelines: dali?.mounts ?? [],
        configurations,
        cache,
      }),
      ...limitsOf("triton", plan.memoryMiB, host.cores),
      ...(props.after && { provider: host.servicesAfter(this, props.after.ready) }),
      image: image.imageId,
      labels: labels(this, service, {
        ...plaintextLabels(host.published(props.expose ?? "loopback")),
        // without model control, a changed configuration must replace the container
        ...(modelControl === "none" && {
          "model-configuration": configurations.map(({ version }) => version).join(" "),
        }),
      }),
    });
    this.container = container;
    this.ready = ready;
    this.grpcTarget = `${name}:${tritonPorts.grpc}`;
    this.service = this.#environmentEntry(props);
  }

  #addConfigurations(
    { host, tools, weights, modelVersions }: TritonServerProps,
    { served, modelKind }: TritonPlan,
    reload: ModelConfigurationProps["reload"],
  ): ModelConfiguration[] {
    const hasVersions = modelVersions !== undefined && weights.source !== "image";
    const versions = hasVersions ? weights.versionMounts(modelKind) : [];
    return served.map(({ tower, name, deployed, engineVersions }, index) => {
      const suffix = towerSuffix(tower);
      const { mount, filledBy } = weights.towers[index]!;
      return new ModelConfiguration(this, `configuration${suffix}`, {
        host,
        tools,
        volume: `${objectName(this)}-config${suffix}`,
        service: `${nameInStack(this)}${suffix}`,
        model: name,
        text: deployed.text,
        versions: engineVersions,
        ...(mount !== undefined && {
          towerWeights: {
            mount,
            filledBy,
            preprocessing: preprocessingSha256(tower.spec, tower.modality),
            versions: versions.find(
              ({ containerPath }) => containerPath === `${modelRepositoryMount}/${name}`,
            )?.volumeName,
          },
        }),
        reload,
      });
    });
  }

  #reloadOf(
    { host, weights, modelControl = "explicit" }: TritonServerProps,
    { towers, gpus, startSeconds }: TritonPlan,
    image: ServerImage,
  ): ModelConfigurationProps["reload"] {
    if (modelControl === "none") return undefined;
    return {
      url: `http://${objectName(this)}:${tritonPorts.http}`,
      ...(modelControl === "explicit" && { key: host.modelControlKey }),
      timeoutSeconds: startSeconds,
      startedWith: [
        image.name,
        ...towers.map(({ version }) => version),
        weights.source,
        deployedConfigName,
        ...gpus.map(String),
      ],
    };
  }

  #addDali(
    { host, tools, weights }: TritonServerProps,
    { jpegKind: ensemble, gpus }: TritonPlan,
    reload: ModelConfigurationProps["reload"],
  ): DaliModels | undefined {
    if (ensemble === undefined || weights.source === "image") return undefined;
    return new DaliModels(this, "dali", {
      ...{ host, tools, weights, ensemble, reload },
      server: objectName(this),
      service: nameInStack(this),
      gpus: gpus.length,
    });
  }

  #environmentEntry({
    host,
    server,
    backend,
    ports,
    expose = "loopback",
  }: TritonServerProps): Service {
    const routes = tlsRoutes(objectName(this), ports);
    host.addRoutes(expose, routes);
    const urls = host.isProxied(expose)
      ? routes.map(({ port }) => `https://${host.acme?.domain}:${port}`)
      : [
          `http://${host.clientAddress(expose)}:${ports.http}`,
          `${host.clientAddress(expose)}:${ports.grpc}`,
        ];
    const prefix = backend === "tensorrt" ? "trt" : "onnx";
    return {
      name: nameInStack(this),
      kind: "triton",
      backend,
      server: server.kind,
      models: this.models.map(({ name }) => name),
      modelKind: this.modelKind,
      ...(this.jpegKind !== undefined && { jpegKind: this.jpegKind }),
      resources: { container: addressOf(this.container) },
      endpoints: [
        { protocol: "oip-http", url: urls[0]!, name: `${prefix}-http` },
        { protocol: "oip-grpc", url: urls[1]!, name: `${prefix}-grpc` },
        { protocol: "metrics", url: `http://127.0.0.1:${ports.metrics}` },
      ],
    };
  }
}
