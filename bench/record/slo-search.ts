import { z } from "zod";
import { payloadFormats, serializations } from "../../contract/bench-endpoint.ts";
import { endpointNames } from "../../contract/environment.ts";

/** Percentiles of an SLO, and their percentages. */
export const sloPercents = { p50: 50, p95: 95, p99: 99 } as const;
export type SloPercentile = keyof typeof sloPercents;
export const sloPercentiles = Object.keys(sloPercents) as SloPercentile[];

const slo = z.strictObject({
  percentile: z.enum(sloPercentiles),
  /** Latency that the percentile must not exceed, from the time at which a request was due. */
  limitMs: z.number().gt(0),
});
export type Slo = z.infer<typeof slo>;

/** Open-loop measurement at one rate. */
const sloTrial = z.strictObject({
  /** `confirmation`: repeats the selected rate with other arrival times; it did not select the rate. */
  purpose: z.enum(["search", "confirmation"]),
  /** Offered rate in requests per second. */
  ratePerSecond: z.number().gt(0),
  /** Seed of the arrival times. */
  seed: z.int(),
  seconds: z.number().min(0),
  /** Requests due in the measured windows, failed ones included. */
  requests: z.int().min(0),
  failed: z.int().min(0),
  /** Successful responses per second. */
  requestsPerSecond: z.number().min(0),
  /** Responses within the SLO per second. */
  goodputPerSecond: z.number().min(0),
  /** Fraction of the requests that succeeded, 0..1. */
  achievedShare: z.number().min(0).max(1),
  /** Latency at the percentile of the SLO, where failed requests count as slower than successful ones; absent if the percentile falls on a failed request. */
  percentileMs: z.number().optional(),
  /**
   * `met`: the rate is accepted. Otherwise the first reason against it: `client`: the load generator was the bottleneck, so the
   * measurement is invalid; `achieved`: less than 99 % succeeded, or the responses fell behind the requests; `latency`: the percentile exceeds the limit.
   */
  verdict: z.enum(["met", "client", "achieved", "latency"]),
  /** Reasons for `client`; whole sentences. */
  invalid: z.array(z.string()).optional(),
});
export type SloTrial = z.infer<typeof sloTrial>;

/** Search for the highest rate of one endpoint and batch size that meets an SLO. */
export const sloSearch = z.strictObject({
  environment: z.string(),
  service: z.string(),
  endpoint: z.enum(endpointNames),
  payload: z.enum(payloadFormats),
  serialization: z.enum(serializations),
  /** Images, or texts with the payload format `text`. */
  imagesPerRequest: z.int().min(1),
  slo,
  arrivals: z.enum(["constant", "poisson"]),
  /** Relative distance between the highest rate that meets the SLO and the lowest that does not, at which the search ends. */
  tolerance: z.number().gt(0),
  /** Highest throughput in a closed loop, in requests per second: the first upper bound. */
  closedLoopPerSecond: z.number().gt(0),
  /** In the order of measurement. */
  trials: z.array(sloTrial),
  /** Images or texts per second to plan replicas for. */
  demandPerSecond: z.number().gt(0).optional(),
});
export type SloSearch = z.infer<typeof sloSearch>;

/** Trial that confirmed the result: the highest rate that meets the SLO. */
export function confirmedTrial({ trials }: Pick<SloSearch, "trials">): SloTrial | undefined {
  return trials.find(({ purpose, verdict }) => purpose === "confirmation" && verdict === "met");
}
