import { type Band, bandOf, throughputBand, type Uncertainty } from "./intervals.ts";
import type { StationName, Topology } from "./model.ts";
import {
  bottleneckOf,
  bytesPerImage,
  type Device,
  type Payload,
  ratesByClients,
  type Scenario,
} from "./scenario.ts";
import type { ServiceTimes } from "./service-times.ts";

/** Number of images and the deadline. */
export interface Job {
  readonly images: number;
  readonly withinHours: number;
}

/** Alternatives to choose from. */
export interface Choices {
  readonly devices: readonly Device[];
  readonly gpus: readonly number[];
  readonly topologies: readonly Topology[];
  readonly payloads: readonly Payload[];
  readonly concurrencies: readonly number[];
}

export interface Option {
  readonly scenario: Scenario;
  readonly imagesPerSecond: number;
  /** 10th and 90th percentile of the prediction. */
  readonly interval: Band;
  readonly bottleneck: StationName;
  readonly hours: number;
  /** Cost of the job. */
  readonly usd: number;
  /** Whether the 10th percentile of the prediction is fast enough. */
  readonly meetsDeadline: boolean;
}

/** Typical price of a cloud provider for a GB that leaves its object storage to the internet, in the first 10 TB of a month. */
export const typicalEgressUsdPerGb = 0.09;

/** Price of the bytes of `images` files that leave the object storage, whatever is sent to the GPUs. */
export function transferCost(images: number, jpegBytes: number, usdPerGb: number) {
  const gigabytes = (images * jpegBytes) / 1e9;
  return { gigabytes, usdPerGb, usd: gigabytes * usdPerGb };
}

export interface Plan {
  readonly requiredImagesPerSecond: number;
  /** All options, those that meet the deadline first, each group ordered by cost. */
  readonly options: readonly Option[];
  /** Bandwidth required for the payload, in Mbit/s. */
  readonly requiredBandwidth: readonly { readonly payload: Payload; readonly mbps: number }[];
}

/** Finds the devices, topology and payload format with the lowest cost for a job. */
export function planJob(
  job: Job,
  base: Omit<Scenario, "device" | "gpus" | "topology" | "payload" | "concurrency">,
  choices: Choices,
  times: ServiceTimes,
  uncertainty: Uncertainty,
): Plan {
  const requiredImagesPerSecond = job.images / (job.withinHours * 3600);
  const options = choices.payloads.flatMap((payload) =>
    choices.devices.flatMap((device) =>
      choices.gpus.flatMap((gpus) =>
        (gpus === 1 ? choices.topologies.slice(0, 1) : choices.topologies).map((topology) =>
          withBestClients(
            {
              ...base,
              backend: base.served?.[payload] ?? base.backend,
              device,
              gpus,
              topology,
              payload,
            },
            choices.concurrencies,
            requiredImagesPerSecond,
            job,
            times,
            uncertainty,
          ),
        ),
      ),
    ),
  );
  return {
    requiredImagesPerSecond,
    options: options.sort(
      (a, b) =>
        Number(b.meetsDeadline) - Number(a.meetsDeadline) ||
        (a.meetsDeadline ? a.usd - b.usd || a.hours - b.hours : faster(a, b) || a.usd - b.usd),
    ),
    requiredBandwidth: choices.payloads.map((payload) => ({
      payload,
      mbps: (requiredImagesPerSecond * bytesPerImage({ ...base, payload }, times) * 8) / 1e6,
    })),
  };
}

/** Orders by hours if they differ by more than 1 %. */
function faster(a: Option, b: Option): number {
  return Math.abs(a.hours / b.hours - 1) > 0.01 ? a.hours - b.hours : 0;
}

/**
 * Option with the fewest clients that reach 98 % of the maximum throughput, or the required rate if that is higher, because
 * additional clients only queue.
 */
function withBestClients(
  scenario: Omit<Scenario, "concurrency">,
  concurrencies: readonly number[],
  requiredImagesPerSecond: number,
  job: Job,
  times: ServiceTimes,
  uncertainty: Uncertainty,
): Option {
  // rate at which the 10th percentile is fast enough
  const safeImagesPerSecond =
    requiredImagesPerSecond / bandOf([1], uncertainty.factors.throughput).p10;
  const rates = ratesByClients(scenario, times, Math.max(...concurrencies));
  const maximum = Math.max(...concurrencies.map((clients) => rates[clients - 1] ?? 0));
  const sufficient =
    maximum >= safeImagesPerSecond ? Math.max(safeImagesPerSecond, 0.98 * maximum) : 0.98 * maximum;
  const concurrency =
    [...concurrencies]
      .sort((a, b) => a - b)
      .find((clients) => (rates[clients - 1] ?? 0) >= sufficient) ?? Math.max(...concurrencies);
  const best = { ...scenario, concurrency };
  const imagesPerSecond = rates[concurrency - 1] ?? 0;
  const hours = job.images / imagesPerSecond / 3600;
  const interval = throughputBand(
    uncertainty.times.map(
      (some) => ratesByClients(scenario, some, concurrency)[concurrency - 1] ?? 0,
    ),
    scenario,
    uncertainty,
  );
  return {
    scenario: best,
    imagesPerSecond,
    interval,
    bottleneck: bottleneckOf(best, times),
    hours,
    usd: scenario.device.usdPerHour * scenario.gpus * hours,
    meetsDeadline: interval.p10 >= requiredImagesPerSecond,
  };
}
