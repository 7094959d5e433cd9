import type { LoadShape } from "../../contract/load-shape.ts";
import type { LatencyDistribution } from "./latency.ts";
import type { ClientUse, Round } from "./round.ts";
import type { WorkerPriority } from "./worker-messages.ts";

/** Options of a measurement. */
export interface MeasureOptions {
  readonly load: LoadShape;
  readonly windowSeconds: number;
  /** Number of measured windows, whatever they show. */
  readonly windows: number;
  /**
   * Length of the warm-up, in seconds; longer if a client has no response by then.
   *
   * @default - one window
   */
  readonly warmupSeconds?: number;
  /** Maximum duration including the warm-up, in seconds. */
  readonly durationSeconds: number;
  /** Number of worker processes; if absent, as many as the rate requires, determined during the warm-up. */
  readonly workers?: number;
  /**
   * Priority of those processes.
   *
   * @default "raised" - if permitted, so that a server on the same machine does not delay the measurement
   */
  readonly priority?: WorkerPriority;
  /** Ends the load; the measurements until then are returned with the outcome `interrupted`. */
  readonly signal: AbortSignal;
  /**
   * Reads counters of the server at window boundaries; the values before the first and after the last measured window
   * are returned, so that counters and figures cover the same time. Failures are ignored.
   */
  readonly readCounters?: () => Promise<unknown>;
  /** Called after each window, for progress. */
  readonly onWindow?: (window: Round["windows"][number], index: number) => void;
}

/** One round of a load point, as the load generator measures it. */
export interface MeasuredLoad
  extends Omit<Round, "round" | "position" | "client">,
    Pick<LatencyDistribution, "histogram"> {
  /** Failed requests by code, including the warm-up. */
  readonly errorsWithWarmup: Round["errors"];
  readonly client: ClientUse;
  /** Mean size of request and response bodies, in bytes. */
  readonly requestBytes: number;
  readonly responseBytes: number;
  /** Results of `readCounters`; absent without it, or if no window was measured. */
  readonly counters?: { readonly before: unknown; readonly after: unknown };
}
