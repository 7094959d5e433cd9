import { Network } from "@cdktf/provider-docker/lib/network/index.js";
import { DockerProvider } from "@cdktf/provider-docker/lib/provider/index.js";
import { Construct } from "constructs";
import { type GpuName, type GpuSpec, gpuCatalogue } from "../../contract/gpus.ts";
import { DataResource, Lazy, movedFrom, type TerraformResource, TerraformStack } from "../cdktf.ts";
import { isDataCentre, requiredDriver } from "../checks/drivers.ts";
import { check } from "../checks/findings.ts";
import { type GpuId, gpuIndexFindings, gpuNamingFindings } from "../checks/gpus.ts";
import { type PortClaim, portConflicts } from "../checks/ports.ts";
import { type VramUse, vramFindings, vramMiB } from "../checks/vram.ts";
import { expression, projectFolder } from "../expression.ts";
import type { HealthGate } from "./health-gate.ts";
import { HostCheck } from "./host-check.ts";
import type { HostRequirements, RequiredDisk, RequiredFile } from "./host-requirements.ts";
import { type ImageKind, type ImageSource, ServerImage } from "./server-image.ts";

/** `cpu` deploys the same services without a GPU. */
export type Accelerator = "gpu" | "cpu";

/** Who reaches a published port: programs on the host (and tunnels to it), or everybody. */
export type Exposure = "loopback" | "all-interfaces";

/** A port of the host that a service publishes. */
export interface PublishedPort extends PortClaim {
  readonly expose: Exposure;
}

export interface GpuHostProps {
  /** Docker endpoint: `ssh://user@host` or `unix:///var/run/docker.sock`. */
  readonly docker: string;
  /** Kind of GPU in the host. */
  readonly gpu: GpuName;
  /** How many GPUs the host has. */
  readonly count: number;
  /** What the services of this host compute on. */
  readonly accelerator: Accelerator;
  /** Name of the Docker network that the services share. */
  readonly network: string;
  /**
   * clipstack command line, run in the project's folder.
   *
   * @default "npx --no-install clipstack"
   */
  readonly command?: string;
}

/**
 * A machine with Docker and NVIDIA GPUs. It knows which ports and GPUs its services have taken.
 *
 * Terraform would stop a container that it replaces while the new image is still built or pulled. So there are two
 * providers for the one endpoint: with `services`, which services are made and destroyed, waits for `prepared`, which waits
 * for all that comes before them.
 */
export class GpuHost extends Construct {
  readonly docker: string;
  readonly accelerator: Accelerator;
  readonly gpu: GpuSpec & { readonly name: GpuName };
  readonly count: number;
  readonly command?: string;
  readonly network: Network;
  /** The provider of the services: nothing of them is touched before everything is there that they need. */
  readonly services: DockerProvider;

  readonly #ports: PublishedPort[] = [];
  readonly #gpus = new Set<GpuId>();
  readonly #models = new Map<GpuId, VramUse[]>();
  readonly #uses: VramUseOnGpus[] = [];
  readonly #triton: string[] = [];
  readonly #disk: RequiredDisk[] = [];
  readonly #files: RequiredFile[] = [];
  readonly #images = new Map<string, ServerImage>();
  readonly #prepared: DataResource;
  #modelControlKey: string | undefined;
  readonly #before: { readonly resource: TerraformResource; readonly version: string }[] = [];

  constructor(scope: Construct, id: string, props: GpuHostProps) {
    super(scope, id);

    this.docker = props.docker;
    this.accelerator = props.accelerator;
    this.gpu = { name: props.gpu, ...gpuCatalogue[props.gpu] };
    this.count = props.count;
    this.command = props.command;

    const hostCheck = new HostCheck(this, "check", {
      docker: props.docker,
      command: props.command,
      requirements: () => this.#requirements(),
    });
    new DockerProvider(this, "docker", { host: hostCheck.docker });
    // The bindings were made from 3.6.2; `gpus = "device=0"` needs 4.0, and 4.1 fixes a panic.
    TerraformStack.of(this).addOverride("terraform.required_providers.docker.version", "~> 4.5");
    this.network = new Network(this, "network", { name: props.network });
    this.#prepared = new DataResource(this, "prepared", {
      input: { docker: hostCheck.docker },
      // replaced with each of them, since only what changes is waited for
      triggersReplace: Lazy.anyValue({
        produce: () => this.#before.map(({ version }) => version).sort(),
      }),
      lifecycle: { createBeforeDestroy: true },
    });
    this.services = new DockerProvider(this, "services", {
      alias: "services",
      host: expression(`${this.#prepared.fqn}.input.docker`),
    });

    check(this, () => gpuNamingFindings([...this.#gpus], this.count));
    check(this, () =>
      [...this.#models].flatMap(([gpu, uses]) => vramFindings(gpu, uses, this.gpu.vramMiB)),
    );
  }

  /**
   * Have `resource` made before any service of the host is stopped or started.
   *
   * @param version - An expression that changes when `resource` is replaced, and is known when a plan is made.
   */
  before(resource: TerraformResource, version: string): void {
    this.#before.push({ resource, version });
    this.#prepared.dependsOn = this.#before.map(
      (it) => `${it.resource.terraformResourceType}.${it.resource.friendlyUniqueId}`,
    );
  }

  /**
   * Provider for the containers of `user`, which are replaced only after `gate` has passed in the same deployment. A
   * dependency between the containers would not do: Terraform destroys dependents first, so all would be gone at once.
   */
  servicesAfter(user: Construct, gate: HealthGate): DockerProvider {
    const order = new DataResource(user, "order", {
      input: {
        docker: expression(`${this.#prepared.fqn}.input.docker`),
        // updated in place whenever the container behind the gate is replaced
        after: expression(`${gate.resource.fqn}.id`),
      },
    });
    movedFrom(order, "turn");
    return new DockerProvider(user, "docker", {
      alias: user.node.id,
      host: expression(`${order.fqn}.input.docker`),
    });
  }

  /**
   * An image on this host. Whoever asks for the same gets the same.
   *
   * @param weights - Whether it has the weights, where it is built.
   */
  image(kind: ImageKind, source: ImageSource, weights = false): ServerImage {
    const key = JSON.stringify([kind, source, weights]);
    const earlier = this.#images.get(key);
    if (earlier !== undefined) return earlier;
    const others = [...this.#images.values()].filter((image) => image.kind === kind).length;
    const id = `${kind}-image${others === 0 ? "" : `-${others + 1}`}`;
    const image = new ServerImage(this, id, { kind, source, weights });
    this.#images.set(key, image);
    this.before(image.resource, image.name);
    this.needsDisk({
      what: source.source === "pull" ? source.name : `${kind} image`,
      miB: imageMiB[kind],
      ...(source.source === "pull" && { image: source.name }),
    });
    return image;
  }

  /**
   * Key of the model control APIs of the host's Tritons, as an expression: random, made once, in Terraform's state and
   * nowhere else.
   */
  get modelControlKey(): string {
    if (this.#modelControlKey === undefined) {
      const key = new DataResource(this, "model-control-key", {
        input: { key: expression("uuid()") },
        // another one would replace every Triton
        lifecycle: { ignoreChanges: ["input"] },
      });
      this.#modelControlKey = expression(`sensitive(${key.fqn}.output.key)`);
    }
    return this.#modelControlKey;
  }

  /** Have the host checked for room before anything is made on it. */
  needsDisk(disk: RequiredDisk): void {
    this.#disk.push(disk);
  }

  /** Have a file looked for before anything is made. */
  needsFile(file: RequiredFile): void {
    this.#files.push(file);
  }

  /** Have the driver checked for a Triton's image. */
  needsDriverFor(image: string): void {
    this.#triton.push(image);
  }

  /** Publish `claims` for the service `user`, which reports what is taken already. */
  publish(user: Construct, claims: readonly PublishedPort[]): void {
    const earlier = [...this.#ports];
    this.#ports.push(...claims);
    check(user, () => portConflicts(claims, earlier));
  }

  /** Run the service `user` on `gpus`, with `instances` of its model on each. On CPU it takes none. */
  run(user: Construct, gpus: readonly GpuId[], use: VramUse): void {
    if (this.accelerator === "cpu") return;
    check(user, () => gpuIndexFindings(gpus, this.count));
    this.#uses.push({ gpus, use });
    for (const gpu of gpus) {
      this.#gpus.add(gpu);
      if (typeof gpu === "string" || gpu < this.count) {
        this.#models.set(gpu, [...(this.#models.get(gpu) ?? []), use]);
      }
    }
  }

  /** What the host must have for all that was asked of it so far. */
  #requirements(): HostRequirements {
    const { name, label, vramMiB: memory, computeCapability } = this.gpu;
    const drivers = [...new Set(this.#triton)].flatMap((image) => requiredDriver(image) ?? []);
    const gpu: HostRequirements["gpu"] = {
      name,
      label,
      count: this.count,
      vramMiB: memory,
      computeCapability,
      dataCentre: isDataCentre(name),
      uses: this.#uses
        .filter(({ gpus }) => gpus.length > 0)
        .map(({ gpus, use }) => ({ service: use.service, gpus: [...gpus], miB: vramMiB(use) })),
      drivers,
    };
    return {
      schema: 1,
      environment: TerraformStack.of(this).node.id,
      docker: this.docker,
      ...(this.#uses.length > 0 && { gpu }),
      ports: this.#ports.map(({ service, prop, port, expose }) => ({
        service,
        setting: prop,
        port,
        address: bindAddress(expose),
      })),
      disk: [...this.#disk],
      files: [...this.#files],
    };
  }

  /** Host name or address at which a client reaches a published port. */
  clientAddress(exposure: Exposure): string {
    return exposure === "loopback" || !this.docker.startsWith("ssh://")
      ? "127.0.0.1"
      : new URL(this.docker).hostname;
  }

  /** A path on the machine that deploys, as Terraform is told: relative to where it runs, so the same on every machine. */
  sourcePath(path: string): string {
    return path.startsWith("/") ? path : `${projectFolder}/${path}`;
  }

  /**
   * A path on this host, as Terraform is told. A relative one is inside the project, on the machine that deploys:
   * Terraform runs in `cdktf.out/stacks/<name>`, and Docker wants absolute paths.
   */
  path(path: string): string {
    return path.startsWith("/") ? path : expression(`abspath("${projectFolder}/${path}")`);
  }
}

interface VramUseOnGpus {
  readonly gpus: readonly GpuId[];
  readonly use: VramUse;
}

/** Room of an image in Docker's folder, in MiB, as unpacked; of what is built, with what the build leaves. */
const imageMiB: Readonly<Record<ImageKind, number>> = {
  "embed-cpu": 2_048,
  "embed-gpu": 8_192,
  "embed-k8s-cpu": 3_072,
  triton: 20_480,
};

/** Address that a container's port is bound to. */
export function bindAddress(exposure: Exposure): string {
  return exposure === "loopback" ? "127.0.0.1" : "0.0.0.0";
}
