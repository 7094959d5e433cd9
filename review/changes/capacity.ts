import { vram, vramMiB } from "../../constructs/checks/vram.ts";
import type { Environment, Service } from "../../contract/environment.ts";
import { type StackChange, unchanged, type Values } from "../input/change.ts";
import { environmentOf, resourcesOf, workloadsOf } from "../rules/facts.ts";
import { deployedConfigs } from "../rules/model-configs.ts";
import { at, blocks } from "../rules/values.ts";

/** What an environment can do, and what it costs, at one moment. */
export interface Capacity {
  /** `1 × rtx-4080`; `4 × l4 (3 used)`; `CPU`. */
  readonly gpus: string;
  /** Memory of the fullest GPU, as the services are estimated to use it. */
  readonly vramUsedMiB?: number;
  /** What models may plan to use of one GPU. */
  readonly vramUsableMiB?: number;
  readonly replicas: readonly Replicas[];
  readonly usdPerHour?: number;
  /** Month in which the price was seen. */
  readonly priceDate?: string;
  readonly imagesPerSecond?: number;
  /** Where the prediction comes from. */
  readonly predictionSource?: string;
}

export interface Replicas {
  readonly service: string;
  readonly min: number;
  readonly max: number;
}

export interface Prediction {
  /** Of the whole environment, with every service that it has. */
  readonly imagesPerSecond: number;
  /** One line: what was measured, where and when. */
  readonly source: string;
}

/** Images per second of an environment, where somebody knows them. */
export type Predict = (environment: Environment, gpusOf: GpusOf) => Prediction | undefined;

/**
 * How many of the environment's GPUs services of these names use together; in a cluster when there are as many pods as there may be.
 * `undefined`: it is not known.
 */
export type GpusOf = (services: readonly string[]) => number | undefined;

export const hoursPerMonth = 730;

export interface CapacityChange {
  /** Absent: there is no environment then. */
  readonly before?: Capacity;
  readonly after?: Capacity;
}

export function capacityOf(
  change: StackChange,
  predict: Predict = () => undefined,
): CapacityChange {
  return {
    before: capacityAt(unchanged(change), predict),
    after: capacityAt(change, predict),
  };
}

/** US dollars for a thousand images. */
export function usdPerThousand({ usdPerHour, imagesPerSecond }: Capacity): number | undefined {
  if (usdPerHour === undefined || !imagesPerSecond) return undefined;
  return (usdPerHour / (imagesPerSecond * 3_600)) * 1_000;
}

function capacityAt(change: StackChange, predict: Predict): Capacity | undefined {
  const environment = environmentOf(change);
  if (environment === undefined) return undefined;
  const { gpu, services } = environment;
  const gpusOf = gpusUsed(change, environment);
  const prediction = predict(environment, gpusOf);
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
    predictionSource: prediction?.source,
  };
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

/** GPU uses of the services, as the check of the host declares them. */
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

/** Estimated memory of the fullest GPU, in MiB. */
function usedVram(change: StackChange, { services }: Environment): number | undefined {
  const used = new Map<string, number>();
  for (const use of checkedUses(change) ?? []) {
    for (const id of gpuIds(use)) used.set(id, (used.get(id) ?? 0) + Number(use.miB));
  }
  const pods = services.flatMap(({ name, kind, backend, resources: { release } }) => {
    const config = deployedConfigs(change).find(({ address }) => address === release)?.config;
    if (kind !== "triton" || backend === "triton" || config === undefined) return [];
    return [vramMiB({ service: name, backend, instances: config.instance_group[0]?.count || 1 })];
  });
  const most = Math.max(...(used.size > 0 ? used.values() : pods));
  return Number.isFinite(most) ? most : undefined;
}
