import {
  type GpuModel,
  type GpuSpec,
  gpuModel,
  gpuNames,
  gpuSpec,
  maxGpus,
  migMemoryMiB,
} from "../../contract/gpus.ts";
import { type Tracing, tracing } from "../../contract/server/tracing.ts";
import { integer } from "../../contract/value-types.ts";
import { type GpuId, gpuNamingFindings, isMig } from "../checks/gpus.ts";
import type { PortClaim } from "../checks/ports.ts";
import { accelerator, dockerEndpoint, migProfile } from "../checks/prop-types.ts";
import { type VramUse, vramFindings, vramMiB } from "../checks/vram.ts";
import type { RunsClipstack } from "../terraform/clipstack-command.ts";
import { type Acme, acme } from "./caddyfile.ts";
import { requiredDriver } from "./drivers.ts";
import type {
  HostRequirements,
  RequiredDisk,
  RequiredFile,
  RequiredMemory,
} from "./host-requirements.ts";

/** Facts of a GPU host, and its requirements and findings, which follow from what its services use. */

/** Device that runs the models of a host or cluster. */
export type Accelerator = "gpu" | "cpu";

/** Interfaces on which a port is published: only the loopback interface of the host (and tunnels to it), or all. */
export type Exposure = "loopback" | "all-interfaces";

/** Address to which the port of a container is bound. */
export function bindAddress(exposure: Exposure): string {
  return exposure === "loopback" ? "127.0.0.1" : "0.0.0.0";
}

/** Host port that a service publishes. */
export interface PublishedPort extends PortClaim {
  readonly expose: Exposure;
}

/** What a service, an image or a volume uses on its host. */
export interface HostUse {
  readonly ports?: readonly PublishedPort[];
  /** GPUs of a service and its memory on each; without effect if the accelerator is `cpu`. */
  readonly gpus?: { readonly ids: readonly GpuId[]; readonly use: VramUse };
  /** Memory limit of a service. */
  readonly memory?: RequiredMemory;
  readonly disk?: readonly RequiredDisk[];
  /** Files of the host or of the deploying machine. */
  readonly files?: readonly RequiredFile[];
  /** Triton image, whose CUDA version requires a driver. */
  readonly tritonImage?: string;
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
  /**
   * Registries from which the host pulls with the credentials of the deploying machine's Docker configuration, like `registry.example:5000`.
   *
   * @default - images are pulled without credentials
   */
  readonly registries?: readonly string[];
  /**
   * URL of the proxy through which the host downloads weights, without user and password.
   *
   * @default - direct connections
   */
  readonly proxy?: string;
  /**
   * Export of traces by the embed servers and Triton servers.
   *
   * @default - no traces
   */
  readonly tracing?: Tracing;
  /**
   * Certificate from an ACME server, for a proxy through which other hosts reach the services with `expose: "all-interfaces"`: the embed
   * server at `https://domain`, Triton servers at their ports + 1000.
   *
   * @default - the services publish their own ports
   */
  readonly acme?: Acme;
}

/** Facts of a host: its props, with the GPU's facts and defaults. */
export interface HostFacts extends Omit<GpuHostProps, "gpu" | "network"> {
  readonly gpu: GpuSpec & { readonly name: string };
  readonly accelerator: Accelerator;
  readonly allowRandomWeights: boolean;
}

/** Schemas of the props of a host. */
export const hostFields = {
  docker: dockerEndpoint,
  gpu: gpuModel,
  count: integer(1, maxGpus),
  migProfile: migProfile.optional(),
  cores: integer(1, 1_024).optional(),
  accelerator: accelerator.optional(),
  tracing: tracing.optional(),
  acme: acme.optional(),
};
/** Values in place of invalid props. */
export const hostStandIns = {
  docker: "unix:///var/run/docker.sock",
  gpu: gpuNames[0],
  count: maxGpus,
};

export function hostFacts({
  gpu,
  accelerator: device = "gpu",
  allowRandomWeights = false,
  ...props
}: GpuHostProps): HostFacts {
  return { ...props, gpu: gpuSpec(gpu), accelerator: device, allowRandomWeights };
}

/** GPUs that some services use, each once. */
export function usedGpus(uses: readonly HostUse[]): readonly GpuId[] {
  return [...new Set(uses.flatMap(({ gpus }) => gpus?.ids ?? []))];
}

/** Findings about the GPUs of all services together: their names, and their memory. */
export function gpuFindings(host: HostFacts, uses: readonly HostUse[]): readonly string[] {
  const gpus = usedGpus(uses);
  return [
    ...gpuNamingFindings(gpus, host.count),
    ...gpus
      .filter((gpu) => typeof gpu === "string" || gpu < host.count)
      .flatMap((gpu) => {
        const onGpu = uses.flatMap((use) => (use.gpus?.ids.includes(gpu) ? [use.gpus.use] : []));
        const memoryMiB = isMig(gpu) ? migMemoryMiB(host.migProfile ?? "") : undefined;
        return vramFindings(gpu, onGpu, memoryMiB || host.gpu.vramMiB);
      }),
  ];
}

/** Requirements of an environment for its host. */
export function requirementsOf(
  environment: string,
  host: HostFacts,
  uses: readonly HostUse[],
): HostRequirements {
  const memory = uses.flatMap((use) => use.memory ?? []);
  return {
    schema: 1,
    environment,
    docker: host.docker,
    ...(uses.some(({ gpus }) => gpus !== undefined) && { gpu: gpuRequirements(host, uses) }),
    ports: uses.flatMap(({ ports = [] }) =>
      ports.map(({ service, prop, port, expose }) => ({
        service,
        setting: prop,
        port,
        address: bindAddress(expose),
      })),
    ),
    ...(memory.length > 0 && { memory }),
    ...(host.cores !== undefined && { cores: host.cores }),
    disk: uses.flatMap(({ disk = [] }) => disk),
    files: uses.flatMap(({ files = [] }) => files),
    ...(host.allowRandomWeights && { allowRandomWeights: true }),
  };
}

function gpuRequirements(
  { gpu, count }: HostFacts,
  uses: readonly HostUse[],
): HostRequirements["gpu"] {
  const images = new Set(uses.flatMap(({ tritonImage }) => tritonImage ?? []));
  return {
    name: gpu.name,
    label: gpu.label,
    count,
    vramMiB: gpu.vramMiB,
    computeCapability: gpu.computeCapability,
    dataCentre: gpu.class === "data-centre",
    ...(gpu.price.date === undefined && { fp16DenseTflops: gpu.fp16DenseTflops }),
    uses: uses.flatMap(({ gpus }) =>
      gpus === undefined || gpus.ids.length === 0
        ? []
        : [{ service: gpus.use.service, gpus: [...gpus.ids], miB: vramMiB(gpus.use) }],
    ),
    drivers: [...images].flatMap((image) => requiredDriver(image) ?? []),
  };
}
