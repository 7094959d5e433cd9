import { Network } from "@cdktf/provider-docker/lib/network/index.js";
import { DockerProvider } from "@cdktf/provider-docker/lib/provider/index.js";
import { Construct } from "constructs";
import { DataResource, Lazy, type TerraformResource, TerraformStack } from "./cdktf.ts";
import { check } from "./checks/findings.ts";
import { type GpuId, gpuIndexFindings, gpuNamingFindings } from "./checks/gpus.ts";
import { type PortClaim, portConflicts } from "./checks/ports.ts";
import { type VramUse, vramFindings } from "./checks/vram.ts";
import { expression } from "./expression.ts";
import { type GpuName, type GpuSpec, gpuCatalogue } from "./gpu-catalogue.ts";
import { type ImageKind, type ImageSource, ServerImage } from "./server-image.ts";

/** `cpu` deploys the same services without a GPU. */
export type Accelerator = "gpu" | "cpu";

/** Who reaches a published port: programs on the host (and tunnels to it), or everybody. */
export type Exposure = "loopback" | "all-interfaces";

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
  readonly network: Network;
  /** The provider of the services: nothing of them is touched before everything is there that they need. */
  readonly services: DockerProvider;

  readonly #ports: PortClaim[] = [];
  readonly #gpus = new Set<GpuId>();
  readonly #models = new Map<GpuId, VramUse[]>();
  readonly #images = new Map<string, ServerImage>();
  readonly #prepared: DataResource;
  readonly #before: { readonly resource: TerraformResource; readonly version: string }[] = [];

  constructor(scope: Construct, id: string, props: GpuHostProps) {
    super(scope, id);

    this.docker = props.docker;
    this.accelerator = props.accelerator;
    this.gpu = { name: props.gpu, ...gpuCatalogue[props.gpu] };
    this.count = props.count;

    new DockerProvider(this, "docker", { host: props.docker });
    // The bindings were made from 3.6.2; `gpus = "device=0"` needs 4.0, and 4.1 fixes a panic.
    TerraformStack.of(this).addOverride("terraform.required_providers.docker.version", "~> 4.5");
    this.network = new Network(this, "network", { name: props.network });
    this.#prepared = new DataResource(this, "prepared", {
      input: { docker: props.docker },
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

  /** An image on this host. Whoever asks for the same gets the same. */
  image(kind: ImageKind, source: ImageSource): ServerImage {
    const key = JSON.stringify([kind, source]);
    const earlier = this.#images.get(key);
    if (earlier !== undefined) return earlier;
    const others = [...this.#images.values()].filter((image) => image.kind === kind).length;
    const id = `${kind}-image${others === 0 ? "" : `-${others + 1}`}`;
    const image = new ServerImage(this, id, { kind, source });
    this.#images.set(key, image);
    this.before(image.resource, image.name);
    return image;
  }

  /** Publish `claims` for the service `user`, which reports what is taken already. */
  publish(user: Construct, claims: readonly PortClaim[]): void {
    const earlier = [...this.#ports];
    this.#ports.push(...claims);
    check(user, () => portConflicts(claims, earlier));
  }

  /** Run the service `user` on `gpus`, with `instances` of its model on each. On CPU it takes none. */
  run(user: Construct, gpus: readonly GpuId[], use: VramUse): void {
    if (this.accelerator === "cpu") return;
    check(user, () => gpuIndexFindings(gpus, this.count));
    for (const gpu of gpus) {
      this.#gpus.add(gpu);
      if (typeof gpu === "string" || gpu < this.count) {
        this.#models.set(gpu, [...(this.#models.get(gpu) ?? []), use]);
      }
    }
  }

  /** Host name or address at which a client reaches a published port. */
  clientAddress(exposure: Exposure): string {
    return exposure === "loopback" || !this.docker.startsWith("ssh://")
      ? "127.0.0.1"
      : new URL(this.docker).hostname;
  }

  /** A path on the machine that deploys, as Terraform is told: relative to where it runs, so the same on every machine. */
  sourcePath(path: string): string {
    return path.startsWith("/") ? path : `${expression("path.root")}/../../../${path}`;
  }

  /**
   * A path on this host, as Terraform is told. A relative one is inside the project, on the machine that deploys:
   * Terraform runs in `cdktf.out/stacks/<name>`, and Docker wants absolute paths.
   */
  path(path: string): string {
    return path.startsWith("/")
      ? path
      : expression(`abspath("${expression("path.root")}/../../../${path}")`);
  }
}

/** Address that a container's port is bound to. */
export function bindAddress(exposure: Exposure): string {
  return exposure === "loopback" ? "127.0.0.1" : "0.0.0.0";
}
