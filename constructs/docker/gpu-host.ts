import { Network } from "@cdktf/provider-docker/lib/network/index.js";
import { DockerProvider } from "@cdktf/provider-docker/lib/provider/index.js";
import { Construct } from "constructs";
import {
  type GpuModel,
  type GpuSpec,
  gpuModel,
  gpuNames,
  gpuSpec,
  maxGpus,
  migMemoryMiB,
} from "../../contract/gpus.ts";
import { gpuLayout } from "../../contract/model-config.ts";
import { integer } from "../../contract/value-types.ts";
import { check } from "../checks/findings.ts";
import {
  type GpuId,
  gpuIndexFindings,
  gpuNamingFindings,
  isMig,
  migFindings,
} from "../checks/gpus.ts";
import { type PortClaim, portConflicts } from "../checks/ports.ts";
import { accelerator, dockerEndpoint, migProfile } from "../checks/prop-types.ts";
import { checkedProps } from "../checks/props.ts";
import { type VramUse, vramFindings, vramMiB } from "../checks/vram.ts";
import {
  addressOf,
  DataResource,
  Lazy,
  type TerraformResource,
  TerraformStack,
} from "../terraform/cdktf.ts";
import type { RunsClipstack } from "../terraform/clipstack-command.ts";
import { expression, projectFolder } from "../terraform/expression.ts";
import { nameInStack, objectName } from "../terraform/names.ts";
import { requiredDriver } from "./drivers.ts";
import type { HealthGate } from "./health-gate.ts";
import { HostCheck } from "./host-check.ts";
import type {
  HostRequirements,
  RequiredDisk,
  RequiredFile,
  RequiredMemory,
} from "./host-requirements.ts";
import { type ImageSource, ServerImage, weightsIn } from "./server-image.ts";

/** Device that runs the models of a host or cluster. */
export type Accelerator = "gpu" | "cpu";

/** Interfaces on which a port is published: only the loopback interface of the host (and tunnels to it), or all. */
export type Exposure = "loopback" | "all-interfaces";

/** Purpose of an image on a host. It determines the construct id and the disk space that the host needs. */
export type ImageKind = "embed-cpu" | "embed-gpu" | "triton" | "pytorch";

/** Host port that a service publishes. */
export interface PublishedPort extends PortClaim {
  readonly expose: Exposure;
}

export interface GpuHostProps extends RunsClipstack {
  /** Docker endpoint: `ssh://user@host` or `unix:///var/run/docker.sock`. */
  readonly docker: string;
  /** GPU model in the host: a name of the catalogue, or the facts of another one. */
  readonly gpu: GpuModel;
  /** Number of GPUs in the host. */
  readonly count: number;
  /**
   * Profile of the MIG devices that services use, like `1g.10gb`.
   *
   * @default - no service uses a MIG device
   */
  readonly migProfile?: string;
  /**
   * CPU cores of the host.
   *
   * @default - unknown: a container may use all of them
   */
  readonly cores?: number;
  /**
   * Device that runs the models.
   *
   * @default "gpu"
   */
  readonly accelerator?: Accelerator;
  /**
   * Whether models with random weights may be deployed. Their embeddings are meaningless.
   *
   * @default false
   */
  readonly allowRandomWeights?: boolean;
  /**
   * Name of the Docker network that the services share.
   *
   * @default - the name of the stack and the path of the construct, joined with `-`
   */
  readonly network?: string;
}

/**
 * Docker host with NVIDIA GPUs. It records the ports, GPUs, disk space and files that its services require.
 *
 * Terraform would stop a container that it replaces while the new image is still built or pulled. The host therefore has
 * two providers for its endpoint. `services` creates and destroys the containers of services; it depends on `prepared`,
 * which depends on images, weights and configurations.
 */
export class GpuHost extends Construct {
  readonly docker: string;
  readonly accelerator: Accelerator;
  readonly gpu: GpuSpec & { readonly name: string };
  readonly count: number;
  readonly cores?: number;
  readonly command?: string;
  readonly network: Network;
  /** Provider of images, volumes and one-shot containers; absent if it is the default Docker provider of the stack. */
  readonly provider: DockerProvider | undefined;
  /** Provider of the containers of services. */
  readonly services: DockerProvider;

  readonly #allowRandomWeights: boolean;
  readonly #ports: PublishedPort[] = [];
  readonly migProfile: string | undefined;
  /** Indices of all GPUs. */
  readonly gpus: readonly number[];
  readonly #uses: { readonly gpus: readonly GpuId[]; readonly use: VramUse }[] = [];
  readonly #tritonImages: string[] = [];
  readonly #disk: RequiredDisk[] = [];
  readonly #files: RequiredFile[] = [];
  readonly #memory: RequiredMemory[] = [];
  readonly #images = new Map<string, { readonly kind: ImageKind; readonly image: ServerImage }>();
  readonly #prepared: DataResource;
  #modelControlKey: string | undefined;
  readonly #prerequisites: { readonly resource: TerraformResource; readonly version: string }[] =
    [];

  constructor(scope: Construct, id: string, given: GpuHostProps) {
    super(scope, id);

    const props = checkedProps(this, given, hostFields, hostStandIns);
    this.docker = props.docker;
    this.accelerator = props.accelerator ?? "gpu";
    this.gpu = gpuSpec(props.gpu);
    this.count = props.count;
    this.gpus = gpuLayout(props.count).gpus;
    this.migProfile = props.migProfile;
    this.cores = props.cores;
    this.command = props.command;

    this.#allowRandomWeights = props.allowRandomWeights ?? false;

    const hostCheck = new HostCheck(this, "check", {
      docker: props.docker,
      command: props.command,
      requirements: () => this.#requirements(),
    });
    const stack = TerraformStack.of(this);
    const isFirst = !stack.node
      .findAll()
      .some((construct) => construct instanceof DockerProvider && construct.alias === undefined);
    const provider = new DockerProvider(this, "docker", {
      host: hostCheck.docker,
      ...(!isFirst && { alias: nameInStack(this) }),
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

    check(this, () => gpuNamingFindings(this.#usedGpus(), this.count));
    check(this, () =>
      this.#usedGpus()
        .filter((gpu) => typeof gpu === "string" || gpu < this.count)
        .flatMap((gpu) => {
          const uses = this.#uses.filter(({ gpus }) => gpus.includes(gpu)).map(({ use }) => use);
          return vramFindings(gpu, uses, this.#memoryMiB(gpu));
        }),
    );
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
    this.requireDisk({
      what: source.source === "pull" ? source.name : `${kind} image`,
      miB: imageMiB[kind],
      ...(source.source === "pull" && { image: source.name }),
    });
    if (source.source === "build") {
      const { files, miB } = weightsIn(source);
      for (const { path, what } of files) this.requireFile({ path, on: "here", what });
      if (miB > 0) {
        this.requireDisk({ what: `weights in the ${kind} image`, miB: weightsLayers * miB });
      }
    }
    return image;
  }

  /** Key of the model control APIs on this host, as an expression: random, generated once, stored only in the state. */
  get modelControlKey(): string {
    if (this.#modelControlKey === undefined) {
      const key = new DataResource(this, "model-control-key", {
        input: { key: expression("uuid()") },
        // another key would replace every Triton
        lifecycle: { ignoreChanges: ["input"] },
      });
      this.#modelControlKey = expression(`sensitive(${key.fqn}.output.key)`);
    }
    return this.#modelControlKey;
  }

  /** Adds disk space to the requirements of the host. */
  requireDisk(disk: RequiredDisk): void {
    this.#disk.push(disk);
  }

  /** Adds the memory limit of a service to the requirements of the host. */
  requireMemory(memory: RequiredMemory): void {
    this.#memory.push(memory);
  }

  /** Adds a file to the requirements of the host or the deploying machine. */
  requireFile(file: RequiredFile): void {
    this.#files.push(file);
  }

  /** Adds the driver of a Triton image to the requirements of the host. */
  requireDriver(tritonImage: string): void {
    this.#tritonImages.push(tritonImage);
  }

  /** Records the ports that `service` publishes, and adds a check of `service` for ports in use. */
  publish(service: Construct, claims: readonly PublishedPort[]): void {
    const earlier = [...this.#ports];
    this.#ports.push(...claims);
    check(service, () => portConflicts(claims, earlier));
  }

  /** Records the GPUs that `service` uses and its memory on each. No effect if the accelerator is `cpu`. */
  useGpus(service: Construct, gpus: readonly GpuId[], use: VramUse): void {
    if (this.accelerator === "cpu") return;
    check(service, () => [
      ...gpuIndexFindings(gpus, this.count),
      ...migFindings(gpus, this.migProfile),
    ]);
    this.#uses.push({ gpus, use });
  }

  #memoryMiB(gpu: GpuId): number {
    return (isMig(gpu) && migMemoryMiB(this.migProfile ?? "")) || this.gpu.vramMiB;
  }

  /** MIG profile of the services' devices; undefined for whole GPUs. */
  get share(): string | undefined {
    return this.#usedGpus().some(isMig) ? this.migProfile : undefined;
  }

  #usedGpus(): readonly GpuId[] {
    return [...new Set(this.#uses.flatMap(({ gpus }) => gpus))];
  }

  #requirements(): HostRequirements {
    return {
      schema: 1,
      environment: TerraformStack.of(this).node.id,
      docker: this.docker,
      ...(this.#uses.length > 0 && { gpu: this.#gpuRequirements() }),
      ports: this.#ports.map(({ service, prop, port, expose }) => ({
        service,
        setting: prop,
        port,
        address: bindAddress(expose),
      })),
      ...(this.#memory.length > 0 && { memory: [...this.#memory] }),
      ...(this.cores !== undefined && { cores: this.cores }),
      disk: [...this.#disk],
      files: [...this.#files],
      ...(this.#allowRandomWeights && { allowRandomWeights: true }),
    };
  }

  #gpuRequirements(): HostRequirements["gpu"] {
    const { name, label, vramMiB: memory, computeCapability } = this.gpu;
    return {
      name,
      label,
      count: this.count,
      vramMiB: memory,
      computeCapability,
      dataCentre: this.gpu.class === "data-centre",
      ...(this.gpu.price.date === undefined && { fp16DenseTflops: this.gpu.fp16DenseTflops }),
      uses: this.#uses
        .filter(({ gpus }) => gpus.length > 0)
        .map(({ gpus, use }) => ({ service: use.service, gpus: [...gpus], miB: vramMiB(use) })),
      drivers: [...new Set(this.#tritonImages)].flatMap((image) => requiredDriver(image) ?? []),
    };
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

const hostFields = {
  docker: dockerEndpoint,
  gpu: gpuModel,
  count: integer(1, maxGpus),
  migProfile: migProfile.optional(),
  cores: integer(1, 1_024).optional(),
  accelerator: accelerator.optional(),
};
const hostStandIns = {
  docker: "unix:///var/run/docker.sock",
  gpu: gpuNames[0],
  count: maxGpus,
};

/** Disk space of an unpacked image in Docker's data folder, in MiB, including the layers that a build leaves. */
const imageMiB: Readonly<Record<ImageKind, number>> = {
  "embed-cpu": 2_048,
  "embed-gpu": 8_192,
  triton: 20_480,
  pytorch: 12_288,
};

/** Layers of an image's build with a copy of the weights. */
const weightsLayers = 2;

/** Address to which the port of a container is bound. */
export function bindAddress(exposure: Exposure): string {
  return exposure === "loopback" ? "127.0.0.1" : "0.0.0.0";
}
