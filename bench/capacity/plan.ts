import type { StationName, Topology } from "./model.ts";
import {
  answerable,
  bottleneckOf,
  bytesPerImage,
  type Device,
  type Payload,
  type Question,
  ratesByClients,
  type ServiceTimes,
} from "./question.ts";

/** Images to embed, and the time there is for them. */
export interface Job {
  readonly images: number;
  readonly withinHours: number;
}

/** What may be chosen; one entry in a list leaves no choice. */
export interface Choices {
  readonly devices: readonly Device[];
  readonly gpus: readonly number[];
  readonly topologies: readonly Topology[];
  readonly payloads: readonly Payload[];
  readonly concurrencies: readonly number[];
}

export interface Option {
  readonly question: Question;
  readonly imagesPerSecond: number;
  readonly bottleneck: StationName;
  readonly hours: number;
  /** For the hours that it runs; absent without a price. */
  readonly usd?: number;
  readonly meets: boolean;
}

export interface Plan {
  /** Images per second that the job needs. */
  readonly needed: number;
  /** Each way to do it, with as many clients as help: those that meet it first, the cheapest of them first, without a price the fewest GPUs. */
  readonly options: readonly Option[];
  /** Bandwidth that the payload alone needs, in Mbit/s. */
  readonly bandwidthNeeded: readonly { readonly payload: Payload; readonly mbps: number }[];
}

/** Which devices, topology and payload do a job for the least money. */
export function planJob(
  job: Job,
  base: Omit<Question, "device" | "gpus" | "topology" | "payload" | "concurrency">,
  choices: Choices,
  times: ServiceTimes,
): Plan {
  const needed = job.images / (job.withinHours * 3600);
  const options = choices.payloads.flatMap((payload) =>
    choices.devices
      .filter((device) => answerable({ ...base, device, payload }, times))
      .flatMap((device) =>
        choices.gpus.flatMap((gpus) =>
          (gpus === 1 ? choices.topologies.slice(0, 1) : choices.topologies).map((topology) =>
            withBestClients(
              { ...base, device, gpus, topology, payload },
              choices.concurrencies,
              needed,
              job,
              times,
            ),
          ),
        ),
      ),
  );
  return {
    needed,
    options: options.sort(
      (a, b) =>
        Number(b.meets) - Number(a.meets) ||
        (a.meets ? cheaper(a, b) || a.hours - b.hours : faster(a, b) || cheaper(a, b)),
    ),
    bandwidthNeeded: choices.payloads.map((payload) => ({
      payload,
      mbps: (needed * bytesPerImage({ ...base, payload }, times) * 8) / 1e6,
    })),
  };
}

/** By dollars; of no price behind those with one, by GPUs. */
function cheaper(a: Option, b: Option): number {
  if (a.usd === undefined && b.usd === undefined) return a.question.gpus - b.question.gpus;
  return a.usd === undefined ? 1 : b.usd === undefined ? -1 : a.usd - b.usd;
}

/** By hours, where they differ by more than 1 %. */
function faster(a: Option, b: Option): number {
  return Math.abs(a.hours / b.hours - 1) > 0.01 ? a.hours - b.hours : 0;
}

/**
 * The fewest clients that give nearly the most, as more of them only wait; where these are too slow for the job, the fewest
 * that are not.
 */
function withBestClients(
  question: Omit<Question, "concurrency">,
  concurrencies: readonly number[],
  needed: number,
  job: Job,
  times: ServiceTimes,
): Option {
  const rates = ratesByClients(question, times, Math.max(...concurrencies));
  const most = Math.max(...concurrencies.map((clients) => rates[clients - 1] ?? 0));
  const enough = most >= needed ? Math.max(needed, 0.98 * most) : 0.98 * most;
  const concurrency =
    [...concurrencies]
      .sort((a, b) => a - b)
      .find((clients) => (rates[clients - 1] ?? 0) >= enough) ?? Math.max(...concurrencies);
  const asked = { ...question, concurrency };
  const { usdPerHour } = question.device;
  const hours = job.images / (rates[concurrency - 1] ?? 0) / 3600;
  return {
    question: asked,
    imagesPerSecond: rates[concurrency - 1] ?? 0,
    bottleneck: bottleneckOf(asked, times),
    hours,
    ...(usdPerHour === undefined ? {} : { usd: usdPerHour * question.gpus * hours }),
    meets: (rates[concurrency - 1] ?? 0) >= needed,
  };
}
