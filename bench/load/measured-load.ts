import type { LoadPoint, LoadShape } from "../record/bench-record.ts";
import type { WorkerPriority } from "./worker-messages.ts";

/** Options of a measurement. */
export interface MeasureOptions {
  readonly load: LoadShape;
  readonly windowSeconds: number;
  /** Number of consecutive windows that must agree. */
  readonly stableWindows: number;
  /** Maximum relative deviation of throughput and p99 from the mean of those windows, 0..1. */
  readonly tolerance: number;
  /** Maximum number of windows; without agreement until then, the load is unstable. */
  readonly maxWindows: number;
  /**
   * Length of the warm-up, in seconds.
   *
   * @default until two consecutive windows agree, at most 30 % of `durationSeconds`
   */
  readonly warmupSeconds?: number;
  /** Maximum duration including the warm-up, in seconds. */
  readonly durationSeconds: number;
  /** Number of worker processes; absent: as many as the rate requires, determined during the warm-up. */
  readonly workers?: number;
  /**
   * Priority of those processes.
   *
   * @default "raised" - if permitted, so that a server on the same machine does not delay the measurement
   */
  readonly priority?: WorkerPriority;
  /** Ends the load; the measurements until then are returned with the verdict `interrupted`. */
  readonly signal: AbortSignal;
  /**
   * Reads counters of the server at window boundaries; the values before the first and after the last measured window
   * are returned, so that counters and figures cover the same time. Failures are ignored.
   */
  readonly readCounters?: () => Promise<unknown>;
  /** Called after each window, for progress. */
  readonly onWindow?: (window: LoadPoint["windows"][number], index: number) => void;
}

/** Part of a {@link LoadPoint} that the load generator measures. */
export interface MeasuredLoad
  extends Pick<
    LoadPoint,
    | "warmup"
    | "windows"
    | "measuredWindows"
    | "stability"
    | "seconds"
    | "samples"
    | "requestsPerSecond"
    | "imagesPerSecond"
    | "achievedShare"
    | "latencyMs"
    | "histogram"
    | "errors"
    | "errorsWithWarmup"
    | "client"
    | "requestBytes"
    | "responseBytes"
    | "invalid"
  > {
  /** Results of `readCounters`; absent without it, or if no window was measured. */
  readonly counters?: { readonly before: unknown; readonly after: unknown };
}
