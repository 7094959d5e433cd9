import { z } from "zod";

/** Failed requests by code. */
export const requestErrors = z.record(z.string(), z.int().min(1));

/** Pairs of latency in microseconds and number of requests, ascending. */
export const latencyHistogram = z.array(z.tuple([z.int().min(0), z.int().min(1)]));

export const latency = z.strictObject({
  mean: z.number(),
  p50: z.number(),
  p90: z.number(),
  p95: z.number(),
  p99: z.number(),
  max: z.number(),
  /** Whether there are enough samples; below the minimum, p99 is determined by one or two requests. */
  p99Reliable: z.boolean(),
});

export const window = z.strictObject({
  seconds: z.number().gt(0),
  /** Successful responses in the window. */
  requests: z.int().min(0),
  imagesPerSecond: z.number().min(0),
  p99Ms: z.number().optional(),
  failed: z.int().min(0),
});

/** Resource use of the load generator, which must not limit the measurement. */
export const clientUse = z.strictObject({
  /** Processes that send requests. */
  workers: z.int().min(1),
  /** CPU utilisation of the busiest worker, 1 = one core. */
  busiestWorkerCores: z.number(),
  /** Highest p99 of any worker's event-loop delay, milliseconds. */
  eventLoopDelayP99Ms: z.number(),
  /**
   * Fraction of the requests sent later than 1 ms, 10 % of the mean interval or 10 % of the p50, whichever is longest, after they were
   * due, 0..1.
   */
  delayedSends: z.number(),
});

export type ClientUse = z.infer<typeof clientUse>;

/** Measurements of a load point between two starts of the load; the unit of every interval. */
export const round = z.strictObject({
  /** Number of the round, from 1; the load points of a round were measured in random order. */
  round: z.int().min(1),
  /** Position in the order of the round, from 1. */
  position: z.int().min(1).optional(),
  startedAt: z.iso.datetime().optional(),
  warmup: z.strictObject({ seconds: z.number(), requests: z.int() }),
  /** Measured windows, in order of time. */
  windows: z.array(window),
  /** `short`: a window is missing or was cut off. */
  outcome: z.enum(["complete", "short", "interrupted"]),
  seconds: z.number().min(0),
  samples: z.int().min(0),
  requestsPerSecond: z.number().min(0),
  imagesPerSecond: z.number().min(0),
  achievedShare: z.number().optional(),
  latencyMs: latency.optional(),
  errors: requestErrors,
  client: clientUse.optional(),
  /** Reasons why the round is invalid; whole sentences. */
  invalid: z.array(z.string()),
});
export type Round = z.infer<typeof round>;
