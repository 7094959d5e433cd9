import { vram, vramMiB } from "../../constructs/checks/vram.ts";
import type { Environment, Service } from "../../contract/environment.ts";
import { deployedConfigs } from "../facts/model-configs.ts";
import { at, blocks } from "../facts/values.ts";
import { environmentOf, resourcesOf, workloadsOf } from "../facts/workloads.ts";
import { type StackChange, stateBefore, type Values } from "../input/change.ts";
import { withoutKey } from "../input/stack-facts.ts";

/** Capacity and cost of an environment, before or after a change. */
export interface Capacity {
  /** `1 × rtx-4080`; `4 × l4 (3 used)`; `CPU`. */
  readonly gpus: string;
  /** Estimated memory use of the GPU with the highest use. */
  readonly vramUsedMiB?: number;
  /** Usable memory of one GPU. */
  readonly vramUsableMiB?: number;
  readonly replicas: readonly Replicas[];
  readonly usdPerHour?: number;
  /** Month of the price. */
  readonly priceDate?: string;
  readonly imagesPerSecond?: number;
  /** Throughput of the GPUs without any other bottleneck. */
  readonly gpuImagesPerSecond?: number;
  readonly predictionSource?: string;
  /** Why there is no prediction, if known. */
  readonly predictionMissing?: string;
}

export interface Replicas {
  readonly service: string;
  readonly min: number;
  readonly max: number;
}

/** Prediction, or the reason why there is none. */
export interface Prediction {
  /** Total of all services. */
  readonly imagesPerSecond?: number;
  /** Throughput of the GPUs without any other bottleneck. */
  readonly gpuImagesPerSecond?: number;
  /** Measurement behind the prediction, in one line. */
  readonly source?: string;
  readonly missing?: string;
}

/** Predicts images per second of an environment. */
export type Predict = (environment: Environment, gpusOf: GpusOf) => Prediction | undefined;

/**
 * Number of the environment's GPUs used by the given services; in a cluster, at maximum scale. `undefined` if unknown.
 */
export type GpusOf = (services: readonly string[]) => number | undefined;

export const hoursPerMonth = 730;

export interface CapacityChange {
  /** Absent if the environment does not exist. */
  readonly before?: Capacity;
  readonly after?: Capacity;
}

export function capacityOf(
  change: StackChange,
  predict: Predict = () => undefined,
): CapacityChange {
  return {
    before: capacityAt(stateBefore(change), predict),
    after: capacityAt(change, predict),
  };
}

/** US dollars per thousand images. */
export function usdPerThousand({ usdPerHour, imagesPerSecond }: Capacity): number | undefined {
  if (usdPerHour === undefined || !imagesPerSecond) return undefined;
  return (usdPerHour / (imagesPerSecond * 3_600)) * 1_000;
}

function capacityAt(change: StackChange, predict: Predict): Capacity | undefined {
  const environment = environmentOf(change);
  if (environment === undefined || !isDeployed(change, environment)) return undefined;
  const { gpu, services } = environment;
  const gpusOf = gpusUsed(change, environment);
  const prediction =
    gpu === undefined ? { missing: "available for GPUs only" } : predict(environment, gpusOf);
  const used = gpusOf(services.map(({ name }) => name)) ?? gpu?.count;
  const idle = used === gpu?.count ? "" : ` (${used} used)`;
  return {
    gpus: gpu === undefined ? "CPU" : `${gpu.count} × ${gpu.name}${idle}`,
    ...(gpu && {
      vramUsableMiB: Math.floor(gpu.vramMiB * vram.usableShare),
      vramUsedMiB: usedVram(change, environment),
      usdPerHour: gpu.usdPerHour,
      priceDate: gpu.priceDate,
    }),
    replicas: services.map((service) => ({ service: service.name, ...boundsOf(change, service) })),
    imagesPerSecond: prediction?.imagesPerSecond,
    gpuImagesPerSecond: prediction?.gpuImagesPerSecond,
    predictionSource: prediction?.source,
    predictionMissing: prediction?.missing,
  };
}

/** Returns whether a plan has resources of the services, because the output alone may describe an environment that is not deployed. */
function isDeployed({ source, resources }: StackChange, { services }: Environment): boolean {
  if (source !== "plan") return true;
  const own = new Set(services.flatMap((service) => Object.values(service.resources)));
  return resources.some((it) => it.after !== undefined && own.has(withoutKey(it.address)));
}

/** The Deployment of a service in a cluster. */
function workloadOf(change: StackChange, { kind, resources, workload }: Service) {
  const { release } = resources;
  return workloadsOf(change).find((it) =>
    release === undefined ? it.name === workload : it.address === release && it.kind === kind,
  );
}

function boundsOf(change: StackChange, service: Service): Omit<Replicas, "service"> {
  const { minReplicas: min = 1, maxReplicas: max = 1 } =
    workloadOf(change, service)?.replicas ?? {};
  return { min, max };
}

function gpusUsed(change: StackChange, { gpu, services }: Environment): GpusOf {
  const checked = checkedUses(change);
  if (checked !== undefined) {
    return (names) => {
      const own = checked.filter(({ service }) => names.includes(String(service)));
      return own.length === 0 ? undefined : new Set(own.flatMap(gpuIds)).size;
    };
  }
  if (services.some(({ workload }) => workload === undefined)) return () => undefined;
  return (names) => {
    const most = services
      .filter(({ name }) => names.includes(name))
      .map((it) => (workloadOf(change, it)?.gpus ?? 0) * boundsOf(change, it).max);
    return Math.min(
      gpu?.count ?? 0,
      most.reduce((sum, it) => sum + it, 0),
    );
  };
}

/** GPU uses declared for the host check. */
function checkedUses(change: StackChange): readonly Values[] | undefined {
  for (const { after } of resourcesOf(change, "terraform_data")) {
    const uses = at(after?.triggers_replace, "gpu", "uses");
    if (Array.isArray(uses)) return blocks(uses);
  }
  return undefined;
}

function gpuIds({ gpus }: Values): readonly string[] {
  return Array.isArray(gpus) ? gpus.map(String) : [];
}

/** Estimated memory use of the GPU with the highest use, in MiB. */
function usedVram(
  change: StackChange,
  { services, models: specs }: Environment,
): number | undefined {
  const used = new Map<string, number>();
  for (const use of checkedUses(change) ?? []) {
    for (const id of gpuIds(use)) used.set(id, (used.get(id) ?? 0) + Number(use.miB));
  }
  const pods = services.flatMap(({ name, kind, backend, resources: { release } }) => {
    const config = deployedConfigs(change).find(({ address }) => address === release)?.config;
    if (kind !== "triton" || backend === "triton" || config === undefined) return [];
    const instances = config.instance_group[0]?.count || 1;
    return [vramMiB({ service: name, backend, instances, models: specs })];
  });
  const most = Math.max(...(used.size > 0 ? used.values() : pods));
  return Number.isFinite(most) ? most : undefined;
}
