import { vram, vramMiB } from "../../constructs/checks/vram.ts";
import type { Environment, Service } from "../../inference-image/src/contract/environment.ts";
import type { Values } from "./change.ts";
import { chartDocuments } from "./chart-values.ts";
import type { StackMoments } from "./consequences.ts";
import { fieldsOf } from "./diff-pbtxt.ts";
import { objectName, type StackFacts } from "./stack-facts.ts";
import { blockOf, blocksOf, isObject } from "./value-paths.ts";

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
  stack: StackMoments,
  predict: Predict = () => undefined,
): CapacityChange {
  const [before, after] = [stack.before, stack.after].map((facts) => capacityAt(facts, predict));
  return { ...(before === undefined ? {} : { before }), ...(after === undefined ? {} : { after }) };
}

/** US dollars for a thousand images. */
export function usdPerThousand({ usdPerHour, imagesPerSecond }: Capacity): number | undefined {
  if (usdPerHour === undefined || !imagesPerSecond) return undefined;
  return (usdPerHour / (imagesPerSecond * 3_600)) * 1_000;
}

function capacityAt(facts: StackFacts, predict: Predict): Capacity | undefined {
  const { environment } = facts;
  if (environment === undefined) return undefined;
  const { gpu, services } = environment;
  const replicas = replicasIn(facts);
  const gpusOf = gpusUsed(facts, replicas);
  const prediction = predict(environment, gpusOf);
  const used = gpusOf(services.map(({ name }) => name)) ?? gpu?.count;
  const idle = used === gpu?.count ? "" : ` (${used} used)`;
  return {
    gpus: gpu === undefined ? "CPU" : `${gpu.count} × ${gpu.name}${idle}`,
    ...(gpu === undefined
      ? {}
      : {
          vramUsableMiB: Math.floor(gpu.vramMiB * vram.usableShare),
          ...usedVram(facts),
          usdPerHour: gpu.usdPerHour,
          priceDate: gpu.priceDate,
        }),
    replicas,
    ...(prediction === undefined
      ? {}
      : { imagesPerSecond: prediction.imagesPerSecond, predictionSource: prediction.source }),
  };
}

function gpusUsed(facts: StackFacts, replicas: readonly Replicas[]): GpusOf {
  const count = facts.environment?.gpu?.count ?? 0;
  const checked = checkedUses(facts);
  if (checked !== undefined) {
    return (names) => {
      const own = checked.filter(({ service }) => names.includes(String(service)));
      return own.length === 0 ? undefined : new Set(own.flatMap(gpuIds)).size;
    };
  }
  const services = facts.environment?.services ?? [];
  if (services.some(({ workload }) => workload === undefined)) return () => undefined;
  return (names) => {
    const most = services
      .filter(({ name }) => names.includes(name))
      .map(
        (service) =>
          gpusOfPod(facts, service) *
          (replicas.find(({ service: name }) => name === service.name)?.max ?? 1),
      );
    return Math.min(
      count,
      most.reduce((sum, it) => sum + it, 0),
    );
  };
}

function gpusOfPod(facts: StackFacts, { name, resources, workload }: Service): number {
  if (resources.release !== undefined) {
    const part = chartPart(facts, name, resources.release);
    if (name.startsWith("triton")) return Number(part?.gpus ?? 1);
    return part?.accelerator === "gpu" ? 1 : 0;
  }
  for (const { type, values } of facts.values.values()) {
    if (!type.startsWith("kubernetes_deployment") || objectName(values).name !== workload) continue;
    const pod = blockOf(blockOf(blockOf(values, "spec"), "template"), "spec");
    return blocksOf(pod.container).reduce((sum, container) => {
      const limits = blockOf(container, "resources").limits;
      return sum + Number((isObject(limits) ? limits["nvidia.com/gpu"] : undefined) ?? 0);
    }, 0);
  }
  return 0;
}

/** What the check of the host says that the services need of its GPUs. */
function checkedUses(facts: StackFacts): readonly Values[] | undefined {
  for (const { type, values } of facts.values.values()) {
    if (type !== "terraform_data" || !isObject(values.triggers_replace)) continue;
    const { gpu } = values.triggers_replace;
    if (isObject(gpu) && Array.isArray(gpu.uses)) return gpu.uses.filter(isObject);
  }
  return undefined;
}

function gpuIds({ gpus }: Values): readonly string[] {
  return Array.isArray(gpus) ? gpus.map(String) : [];
}

/** Of the GPU that they need most of. */
function usedVram(facts: StackFacts): Pick<Capacity, "vramUsedMiB"> {
  const used = new Map<string, number>();
  for (const use of checkedUses(facts) ?? []) {
    for (const id of gpuIds(use)) used.set(id, (used.get(id) ?? 0) + Number(use.miB));
  }
  const most = Math.max(...used.values());
  if (Number.isFinite(most)) return { vramUsedMiB: most };
  const pods = (facts.environment?.services ?? []).flatMap(({ name, kind, backend, resources }) => {
    const part = chartPart(facts, kind === "triton" ? "triton" : name, resources.release);
    if (backend === "triton" || !isObject(part?.modelConfig)) return [];
    const fields = fieldsOf(String(part.modelConfig.text ?? ""));
    const instances = Number(fields?.get("instance_group.count") ?? 1);
    return [vramMiB({ service: name, backend, instances })];
  });
  return pods.length === 0 ? {} : { vramUsedMiB: Math.max(...pods) };
}

function replicasIn(facts: StackFacts): readonly Replicas[] {
  return (facts.environment?.services ?? []).map(({ name, resources, workload }) => {
    if (resources.container !== undefined) return { service: name, min: 1, max: 1 };
    if (resources.release !== undefined) {
      return { service: name, ...scalingOf(chartPart(facts, name, resources.release)) };
    }
    return { service: name, ...typedScaling(facts, workload ?? "") };
  });
}

/** What the values of a release say of a service. */
function chartPart(facts: StackFacts, name: string, release = ""): Values | undefined {
  const documents = chartDocuments(facts.values.get(release)?.values.values);
  const part = documents?.[name.startsWith("triton") ? "triton" : name];
  return isObject(part) ? part : undefined;
}

function scalingOf(part: unknown): Omit<Replicas, "service"> {
  const scaling = isObject(part) && isObject(part.autoscaling) ? part.autoscaling : {};
  const fixed = isObject(part) && typeof part.replicas === "number" ? part.replicas : 1;
  if (scaling.enabled !== true) return { min: fixed, max: fixed };
  return { min: Number(scaling.minReplicas ?? 1), max: Number(scaling.maxReplicas ?? 1) };
}

function typedScaling(facts: StackFacts, workload: string): Omit<Replicas, "service"> {
  for (const { type, values } of facts.values.values()) {
    if (!type.startsWith("kubernetes_horizontal_pod_autoscaler")) continue;
    const spec = blockOf(values, "spec");
    if (blockOf(spec, "scale_target_ref").name !== workload) continue;
    return { min: Number(spec.min_replicas ?? 1), max: Number(spec.max_replicas ?? 1) };
  }
  for (const { type, values } of facts.values.values()) {
    if (!type.startsWith("kubernetes_deployment") || objectName(values).name !== workload) continue;
    const count = Number(blockOf(values, "spec").replicas ?? 1);
    return { min: count, max: count };
  }
  return { min: 1, max: 1 };
}
