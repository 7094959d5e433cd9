import type { LoadPoint, LoadShape } from "../record/bench-record.ts";
import type { WorkerPriority } from "./worker-messages.ts";

/** How a load is measured. */
export interface MeasureOptions {
  readonly load: LoadShape;
  /** Length of a window, in seconds. */
  readonly windowSeconds: number;
  /** The last so many windows must agree. */
  readonly stableWindows: number;
  /** Largest deviation of throughput and of p99 from the mean of those windows, 0..1. */
  readonly tolerance: number;
  /** After so many windows without agreement the load is unstable. */
  readonly maxWindows: number;
  /**
   * Length of the warm-up.
   *
   * @default until two windows in a row agree, at most 30 % of the ceiling
   */
  readonly warmupSeconds?: number;
  /** Ceiling, warm-up included, in seconds. */
  readonly durationSeconds: number;
  /** Processes that send; absent: as many as the rate needs, found out while warming up. */
  readonly workers?: number;
  /**
   * Of those processes.
   *
   * @default "raised" - where it may be, so that a server on the same machine does not hold up what measures it
   */
  readonly priority?: WorkerPriority;
  /** Ends the load; what was measured until then is returned, with the verdict `interrupted`. */
  readonly signal: AbortSignal;
  /**
   * Called at the boundary of windows while the load goes on; the values before the first and after the last measured
   * window are returned. So counters of a server are read over the same time as the figures. Where it
   * fails the load goes on.
   */
  readonly readCounters?: () => Promise<unknown>;
  /** For progress: after each window. */
  readonly onWindow?: (window: LoadPoint["windows"][number], index: number) => void;
}

/** The part of a {@link LoadPoint} that the generator knows. */
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
  /** What `readCounters` gave; absent without it, or where no window was measured. */
  readonly counters?: { readonly before: unknown; readonly after: unknown };
}
