import { Network } from "@cdktf/provider-docker/lib/network/index.js";
import { DockerProvider } from "@cdktf/provider-docker/lib/provider/index.js";
import { Construct } from "constructs";
import { TerraformStack } from "./cdktf.ts";
import { check } from "./checks/findings.ts";
import { gpuIndexFindings } from "./checks/gpus.ts";
import { type PortClaim, portConflicts } from "./checks/ports.ts";
import { type VramUse, vramFindings } from "./checks/vram.ts";
import { expression } from "./expression.ts";
import { type GpuName, type GpuSpec, gpuCatalogue } from "./gpu-catalogue.ts";

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

/** A machine with Docker and NVIDIA GPUs. It knows which ports and GPUs its services have taken. */
export class GpuHost extends Construct {
  readonly docker: string;
  readonly accelerator: Accelerator;
  readonly gpu: GpuSpec & { readonly name: GpuName };
  readonly count: number;
  readonly network: Network;

  readonly #ports: PortClaim[] = [];
  readonly #models = new Map<number, VramUse[]>();

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

    check(this, () =>
      [...this.#models].flatMap(([index, uses]) => vramFindings(index, uses, this.gpu.vramMiB)),
    );
  }

  /** Publish `claims` for the service `user`, which reports what is taken already. */
  publish(user: Construct, claims: readonly PortClaim[]): void {
    const earlier = [...this.#ports];
    this.#ports.push(...claims);
    check(user, () => portConflicts(claims, earlier));
  }

  /** Run the service `user` on `gpus`, with `instances` of its model on each. On CPU it takes none. */
  run(user: Construct, gpus: readonly number[], use: VramUse): void {
    if (this.accelerator === "cpu") return;
    check(user, () => gpuIndexFindings(gpus, this.count));
    for (const index of gpus) {
      if (index < this.count) {
        this.#models.set(index, [...(this.#models.get(index) ?? []), use]);
      }
    }
  }

  /** Host name or address at which a client reaches a published port. */
  clientAddress(exposure: Exposure): string {
    return exposure === "loopback" || !this.docker.startsWith("ssh://")
      ? "127.0.0.1"
      : new URL(this.docker).hostname;
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
