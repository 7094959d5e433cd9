import { typicalEgressUsdPerGb } from "../../bench/capacity/plan.ts";
import { meanInterval } from "../../bench/stats/intervals.ts";
import type { MeasuredRate } from "../../bulk/measure.ts";
import type { GpuName } from "../../contract/gpus.ts";
import { formatDuration, formatRate, formatUsd } from "../../report/document/number-format.ts";
import { hardwareFromOptions, serviceTimesOf } from "./capacity-inputs.ts";
import { jobPlan } from "./capacity-job.ts";
import type { CapacityArguments } from "./capacity-options.ts";

export interface EstimateArguments {
  readonly model?: string;
  readonly gpu?: GpuName;
  readonly gpus?: number;
  /** Hours. */
  readonly within?: number;
  /** Mbit/s between the images and the workers. */
  readonly bandwidth: number;
  /** US dollars per GB. */
  readonly egressPrice?: number;
}

/**
 * Predicts GPUs, time and cost of a job with `--within`: workers decode beside the GPUs, so the image files cross the link.
 *
 * @param bytes - Size of all images; 0 if unknown.
 */
export function estimateText(
  { images, bytes }: { readonly images: number; readonly bytes: number },
  { within, egressPrice = typicalEgressUsdPerGb, ...args }: EstimateArguments,
): string | undefined {
  if (within === undefined || images === 0) return undefined;
  const capacity: CapacityArguments = {
    ...args,
    egressPrice,
    payload: "jpeg",
    // the default of `clipstack capacity`, if the source does not state sizes
    jpegKb: bytes === 0 ? 10 : bytes / images / 1000,
    roundTrip: 1,
    connections: "kept",
    batchSize: 32,
    clientMs: 0,
  };
  const hardware = hardwareFromOptions(capacity);
  const times = serviceTimesOf(hardware, capacity);
  return jobPlan({ images, withinHours: within }, { hardware, args: capacity, ...times }).text;
}

/** Time of one worker on this machine with its 95 % interval, for the images without a result. */
export interface BulkPrediction {
  readonly imagesPerSecond: number;
  readonly seconds: number;
  readonly low: number;
  readonly high: number;
  readonly usd?: number;
}

/** @returns undefined if nothing remains */
export function predictionOf(
  { secondsPerImage, remaining }: MeasuredRate,
  usdPerHour: number | undefined,
): BulkPrediction | undefined {
  const interval = meanInterval(secondsPerImage);
  if (interval === undefined) return undefined;
  const seconds = remaining * interval.mean;
  return {
    imagesPerSecond: 1 / interval.mean,
    seconds,
    low: remaining * interval.low,
    high: remaining * interval.high,
    ...(usdPerHour !== undefined && { usd: (seconds / 3600) * usdPerHour }),
  };
}

export function predictionText(prediction: BulkPrediction): string {
  const { imagesPerSecond, seconds, low, high, usd } = prediction;
  return [
    `one worker on this machine: ${formatRate(imagesPerSecond)} images/s, ${formatDuration(seconds)} (${formatDuration(low)} to ${formatDuration(high)})`,
    ...(usd === undefined ? [] : [formatUsd(usd)]),
  ].join(", ");
}
