import { embedRoutes } from "../contract/embed-routes.ts";
import { dcgmMetrics } from "../contract/metrics/dcgm-metrics.ts";
import { embedMetrics, secondsBuckets } from "../contract/metrics/embed-metrics.ts";
import { tritonMetrics } from "../contract/metrics/triton-metrics.ts";

/** Label matchers of the series of a service, without braces. */
export interface Selectors {
  readonly embed: string;
  readonly triton: string;
  readonly gpu: string;
}

/** Routes that embed, as a regular expression. */
export const embedRoutePattern = Object.values(embedRoutes)
  .filter(({ method }) => method === "POST")
  .map(({ path }) => path)
  .join("|");

/** Per-second increase of a counter over `window`, summed by labels. */
export function rate(metric: string, selector: string, window: string, by = ""): string {
  const labels = by === "" ? "" : ` by (${by})`;
  return `sum${labels} (rate(${metric}{${selector}}[${window}]))`;
}

/** Quotient of the increases of two counters, such as a time and a number of requests; absent while the second does not increase. */
export function meanOf(
  [sum, count]: readonly [string, string],
  selector: string,
  window: string,
  by = "",
): string {
  return `${rate(sum, selector, window, by)} / (${rate(count, selector, window, by)} > 0)`;
}

export function histogramMean(metric: string, selector: string, window: string, by = ""): string {
  return meanOf([`${metric}_sum`, `${metric}_count`], selector, window, by);
}

/** Percentile of a histogram; absent without new values. */
export function percentile(
  quantile: number,
  metric: string,
  selector: string,
  window: string,
  by = "",
): string {
  const labels = by === "" ? "le" : `le, ${by}`;
  return `histogram_quantile(${quantile}, ${rate(`${metric}_bucket`, selector, window, labels)}) >= 0`;
}

/** Matchers of requests that embed. */
export const embedding = (selector: string) =>
  [selector, `route=~"${embedRoutePattern}"`].filter((each) => each !== "").join(",");

/** Fraction of the requests that failed: 5xx, and 429 because the client received no embedding. */
export function errorRatio(selector: string, window: string): string {
  const failed = rate(embedMetrics.requests, `${embedding(selector)},status=~"5..|429"`, window);
  return `(${failed} or vector(0)) / ${rate(embedMetrics.requests, embedding(selector), window)}`;
}

/** Fraction of the requests that took longer than a bucket's bound in seconds. */
export function slowRatio(selector: string, window: string, bound: string): string {
  const { requestSeconds } = embedMetrics;
  // Prometheus 3 stores the bound 1 as 1.0
  const fast = `${embedding(selector)},le=~"${bound}([.]0)?"`;
  return `1 - ${rate(`${requestSeconds}_bucket`, fast, window)} / ${rate(`${requestSeconds}_count`, embedding(selector), window)}`;
}

/** Upper bound in seconds of the histogram bucket that contains a latency of `milliseconds`; the largest bound if all are smaller. */
export function latencyBound(milliseconds: number): number {
  return (
    secondsBuckets.find((bound) => bound * 1000 >= milliseconds) ?? Math.max(...secondsBuckets)
  );
}

/**
 * Average queue time per request in Triton, in milliseconds. Counters of all models are summed before the division, because a
 * mean of the models' averages would weight an idle model like a busy one. The result is 0 without traffic, because an
 * autoscaler needs a value. `BY`, `SELECTOR` and `WINDOW` are placeholders for labels, a selector and a duration.
 */
export const queueTime = {
  expression: [
    `sum by (BY) (rate(${tritonMetrics.queueMicroseconds}{SELECTOR}[WINDOW]))`,
    `/ clamp_min(sum by (BY) (rate(${tritonMetrics.success}{SELECTOR}[WINDOW])), 0.001)`,
    "/ 1000",
  ].join(" "),
  record: "clipstack:triton_queue_milliseconds:rate",
  adapterMetric: "clipstack_triton_queue_milliseconds",
} as const;

/** Queries of KEDA besides the queue time, with placeholders: SELECTOR. */
export const scalingQueries = {
  /** Mean use of the GPUs, in percent. */
  gpuUse: `avg(${dcgmMetrics.utilization}{SELECTOR})`,
  /** Positive while requests arrive. The second part sees the first request, before which its counter does not exist. */
  activity: [
    `sum(rate(${embedMetrics.requests}{${embedding("SELECTOR")}}[1m])) > 0`,
    `or sum(${embedMetrics.requests}{${embedding("SELECTOR")}}) - (sum(${embedMetrics.requests}{${embedding("SELECTOR")}} offset 1m) or vector(0))`,
  ].join(" "),
} as const;

/** Names of the recorded facts of an environment; 0 if not known. */
export const recorded = {
  usdPerHour: "clipstack:usd_per_hour",
  predictedImagesPerSecond: "clipstack:predicted_images_per_second",
  budgetUsdPer1000Images: "clipstack:budget_usd_per_1000_images",
} as const;

/** Images per second over `window`. */
export const imagesPerSecond = (selector: string, window: string) =>
  rate(embedMetrics.images, selector, window);

/** US dollars per 1,000 images over `window`. */
export const usdPer1000Images = (selector: string, window: string) =>
  `sum(${recorded.usdPerHour}) / (${imagesPerSecond(selector, window)} * 3600 / 1000 > 0)`;
