import { Construct } from "constructs";
import { Network } from "#providers/docker/lib/network/index.js";
import { DockerProvider } from "#providers/docker/lib/provider/index.js";
import { gpuLayout } from "../../contract/model-config.ts";
import type { Tracing } from "../../contract/server/tracing.ts";
import { check, findingIf } from "../checks/findings.ts";
import { type GpuId, gpuIndexFindings, isMig, migFindings } from "../checks/gpus.ts";
import { portConflicts, type ReportedConflict } from "../checks/ports.ts";
import { checkedProps } from "../checks/props.ts";
import {
  addressOf,
  DataResource,
  Lazy,
  type TerraformResource,
  TerraformStack,
} from "../terraform/cdktf.ts";
import { expression, projectFolder } from "../terraform/expression.ts";
import { nameInStack, objectName } from "../terraform/names.ts";
import type { Acme, ProxyRoute } from "./caddyfile.ts";
import type { HealthGate } from "./health-gate.ts";
import { HostCheck } from "./host-check.ts";
import {
  type Accelerator,
  type Exposure,
  type GpuHostProps,
  gpuFindings,
  type HostFacts,
  type HostUse,
  hostFacts,
  hostFields,
  hostStandIns,
  requirementsOf,
  usedGpus,
} from "./host-plan.ts";
import { type ImageSource, ServerImage, weightsIn } from "./server-image.ts";

/** Purpose of an image on a host. It determines the construct id and the disk space that the host needs. */
export type ImageKind =
  | "embed-cpu"
  | "embed-gpu"
  | "triton"
  | "pytorch"
  | "proxy"
  | "prometheus"
  | "grafana"
  | "dcgm-exporter";

/**
 * Docker host with NVIDIA GPUs. It records the ports, GPUs, disk space and files that its services require.
 *
 * Terraform would stop a container that it replaces while the new image is still built or pulled. The host therefore has
 * two providers for its endpoint. `services` creates and destroys the containers of services; it depends on `prepared`,
 * which depends on images, weights and configurations.
 */
export class GpuHost extends Construct implements HostFacts {
  readonly docker: string;
  readonly accelerator: Accelerator;
  readonly gpu: HostFacts["gpu"];
  readonly count: number;
  /** Indices of all GPUs. */
  readonly gpus: readonly number[];
  readonly migProfile?: string;
  readonly cores?: number;
  readonly allowRandomWeights: boolean;
  readonly command?: string;
  readonly proxy?: string;
  readonly tracing?: Tracing;
  readonly acme?: Acme;
  readonly network: Network;
  /** Provider of images, volumes and one-shot containers; absent if it is the default Docker provider of the stack. */
  readonly provider: DockerProvider | undefined;
  /** Provider of the containers of services. */
  readonly services: DockerProvider;
  /** Ports that two services publish, with the path of the construct that reports it. */
  readonly portConflicts: ReportedConflict[] = [];

  readonly #routes: ProxyRoute[] = [];
  #hasProxy = false;
  readonly #uses: HostUse[] = [];
  readonly #images = new Map<string, { readonly kind: ImageKind; readonly image: ServerImage }>();
  readonly #prepared: DataResource;
  #modelControlKey: string | undefined;
  readonly #prerequisites: { readonly resource: TerraformResource; readonly version: string }[] =
    [];

  constructor(scope: Construct, id: string, given: GpuHostProps) {
    super(scope, id);

    const props = checkedProps(this, given, hostFields, hostStandIns);
    const facts = hostFacts(props);
    this.docker = facts.docker;
    this.accelerator = facts.accelerator;
    this.gpu = facts.gpu;
    this.count = facts.count;
    this.gpus = gpuLayout(facts.count).gpus;
    this.migProfile = facts.migProfile;
    this.cores = facts.cores;
    this.allowRandomWeights = facts.allowRandomWeights;
    this.command = props.command;
    this.proxy = props.proxy;
    this.tracing = facts.tracing;
    this.acme = facts.acme;

    const stack = TerraformStack.of(this);
    const hostCheck = new HostCheck(this, "check", {
      docker: facts.docker,
      command: props.command,
      requirements: () => requirementsOf(stack.node.id, facts, this.#uses),
    });
    const isFirst = !stack.node
      .findAll()
      .some((construct) => construct instanceof DockerProvider && construct.alias === undefined);
    const provider = new DockerProvider(this, "docker", {
      host: hostCheck.docker,
      ...(!isFirst && { alias: nameInStack(this) }),
      // the provider reads them from the Docker configuration: neither plan nor state has them
      ...(props.registries !== undefined && {
        registryAuth: props.registries.map((address) => ({ address })),
      }),
    });
    this.provider = isFirst ? undefined : provider;
    // The bindings were generated from 3.6.2. `gpus = "device=0"` needs 4.0, and 4.1 fixes a panic.
    stack.addOverride("terraform.required_providers.docker.version", "~> 4.5");
    this.network = new Network(this, "network", {
      provider: this.provider,
      name: props.network ?? objectName(this),
    });
    this.#prepared = new DataResource(this, "prepared", {
      input: { docker: hostCheck.docker },
      // Replaced whenever a prerequisite changes, because Terraform orders a destroy only after resources that change in
      // the same plan.
      triggersReplace: Lazy.anyValue({
        produce: () => this.#prerequisites.map(({ version }) => version).sort(),
      }),
      lifecycle: { createBeforeDestroy: true },
    });
    this.services = new DockerProvider(this, "services", {
      alias: isFirst ? "services" : `${nameInStack(this)}-services`,
      host: expression(`${this.#prepared.fqn}.input.docker`),
    });
    check(this, () => gpuFindings(facts, this.#uses));
    check(this, () =>
      findingIf(
        facts.acme !== undefined && !this.#hasProxy,
        "acme",
        "be set only with a TlsProxy of the host",
        `'${facts.acme?.domain}'`,
      ),
    );
  }

  /** Adds routes of a service to the proxy, if the host has one and `expose` includes other hosts. */
  addRoutes(expose: Exposure, routes: readonly ProxyRoute[]): void {
    if (this.isProxied(expose)) this.#routes.push(...routes);
  }

  /** Returns the routes for the proxy of this host, complete once the stack is built. */
  proxyRoutes(): readonly ProxyRoute[] {
    this.#hasProxy = true;
    return this.#routes;
  }

  /** Whether other hosts reach a service through the proxy, which has TLS. */
  isProxied(expose: Exposure): boolean {
    return this.acme !== undefined && expose !== "loopback";
  }

  /** Interfaces on which the container of a service is published: behind the proxy, only the loopback interface. */
  published(expose: Exposure): Exposure {
    return this.isProxied(expose) ? "loopback" : expose;
  }

  /**
   * Makes `resource` a prerequisite of the services: it exists before a service is stopped or started.
   *
   * @param version - Terraform expression, known at plan time, that changes when `resource` is replaced.
   */
  addPrerequisite(resource: TerraformResource, version: string): void {
    this.#prerequisites.push({ resource, version });
    this.#prepared.dependsOn = this.#prerequisites.map((each) => addressOf(each.resource));
  }

  /**
   * Provider for containers that are replaced only after `gate` has passed in the same deployment. A dependency between
   * the containers would not suffice, because Terraform destroys all dependents first.
   */
  servicesAfter(scope: Construct, gate: HealthGate): DockerProvider {
    const order = new DataResource(scope, "order", {
      input: {
        docker: expression(`${this.#prepared.fqn}.input.docker`),
        // updated in place whenever the container behind the gate is replaced
        after: expression(`${gate.resource.fqn}.id`),
      },
    });
    return new DockerProvider(scope, "docker", {
      alias: nameInStack(scope),
      host: expression(`${order.fqn}.input.docker`),
    });
  }

  /** Returns the image of `source` on this host. Equal sources share one image. */
  image(kind: ImageKind, source: ImageSource): ServerImage {
    const key = JSON.stringify([kind, source]);
    const existing = this.#images.get(key);
    if (existing !== undefined) return existing.image;
    const others = [...this.#images.values()].filter((other) => other.kind === kind).length;
    const id = `${kind}-image${others === 0 ? "" : `-${others + 1}`}`;
    const image = new ServerImage(this, id, { source, provider: this.provider });
    this.#images.set(key, { kind, image });
    this.addPrerequisite(image.resource, image.name);
    const { files, miB } = source.source === "build" ? weightsIn(source) : { files: [], miB: 0 };
    const pulled = source.source === "pull" ? source.name : undefined;
    this.require({
      disk: [
        {
          what: pulled ?? `${kind} image`,
          miB: imageMiB[kind],
          ...(pulled !== undefined && { image: pulled }),
        },
        ...(miB > 0 ? [{ what: `weights in the ${kind} image`, miB: weightsLayers * miB }] : []),
      ],
      files: files.map(({ path, what }) => ({ path, on: "here", what })),
    });
    return image;
  }

  /** Key of the model control APIs on this host, as an expression: random, generated once, stored only in the state. */
  get modelControlKey(): string {
    if (this.#modelControlKey === undefined) {
      const key = new DataResource(this, "model-control-key", {
        input: { key: expression("uuid()") },
        // another key would replace every Triton server
        lifecycle: { ignoreChanges: ["input"] },
      });
      this.#modelControlKey = expression(`sensitive(${key.fqn}.output.key)`);
    }
    return this.#modelControlKey;
  }

  /**
   * Records what is used on the host, for its requirements and for checks of all services together.
   *
   * @param service - Construct that reports findings about its ports and GPUs.
   */
  require(use: HostUse, service: Construct = this): void {
    const { gpus, ports = [] } = use;
    if (gpus !== undefined && this.accelerator === "gpu") {
      check(service, () => [
        ...gpuIndexFindings(gpus.ids, this.count),
        ...migFindings(gpus.ids, this.migProfile),
      ]);
    }
    const conflicts = portConflicts(
      ports,
      this.#uses.flatMap((earlier) => earlier.ports ?? []),
    );
    const construct = service.node.path;
    this.portConflicts.push(...conflicts.map((conflict) => ({ ...conflict, construct })));
    check(service, () => conflicts.map(({ finding }) => finding));
    this.#uses.push(this.accelerator === "gpu" ? use : { ...use, gpus: undefined });
  }

  /** GPUs that the services use so far, each once; none if the accelerator is `cpu`. */
  get usedGpus(): readonly GpuId[] {
    return usedGpus(this.#uses);
  }

  /** MIG profile of the services' devices; undefined for whole GPUs. */
  get share(): string | undefined {
    return usedGpus(this.#uses).some(isMig) ? this.migProfile : undefined;
  }

  /** Host name or address at which a client reaches a published port. */
  clientAddress(exposure: Exposure): string {
    return exposure === "loopback" || !this.docker.startsWith("ssh://")
      ? "127.0.0.1"
      : new URL(this.docker).hostname;
  }

  /** Path on the deploying machine, relative to the folder in which Terraform runs. */
  sourcePath(path: string): string {
    return path.startsWith("/") ? path : `${projectFolder}/${path}`;
  }

  /**
   * Absolute path on this host. A relative path is inside the project on the deploying machine; Terraform resolves it,
   * because Docker requires absolute paths.
   */
  path(path: string): string {
    return path.startsWith("/") ? path : expression(`abspath("${projectFolder}/${path}")`);
  }
}

/** Disk space of an unpacked image in Docker's data folder, in MiB, including the layers that a build leaves. */
const imageMiB: Readonly<Record<ImageKind, number>> = {
  "embed-cpu": 2_048,
  "embed-gpu": 8_192,
  triton: 20_480,
  pytorch: 12_288,
  prometheus: 500,
  grafana: 1_024,
  "dcgm-exporter": 2_048,
  proxy: 128,
};

/** Layers of an image's build with a copy of the weights. */
const weightsLayers = 2;
