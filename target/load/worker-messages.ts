import type { LoadShape } from "../../contract/load-shape.ts";
import type { PreparedRequests } from "../requests/prepared-requests.ts";

/** Priority of worker processes: above a server on the same machine if permitted, or normal. */
export type WorkerPriority = "raised" | "usual";

/** Message to a worker process. */
export type ToWorker =
  | {
      readonly kind: "prepare";
      readonly requests: PreparedRequests;
      readonly load: LoadShape;
      /** Index of this worker among `workers`, which share the load. */
      readonly index: number;
      readonly workers: number;
      readonly priority: WorkerPriority;
    }
  /** Starts the load at `atMs` on the clock of {@link clockMs}. */
  | { readonly kind: "start"; readonly atMs: number }
  /** Requests the samples since the previous request. */
  | {
      readonly kind: "collect";
      /** Whether a window ends here, so that the event loop delay is reset. */
      readonly boundary: boolean;
    }
  /** Stops sending, and waits at most `patienceMs` for outstanding requests. */
  | { readonly kind: "stop"; readonly patienceMs: number };

/** Message from a worker process. */
export type FromWorker =
  | { readonly kind: "prepared" }
  /** Sent without a request, because many samples at once would block the worker. */
  | {
      readonly kind: "samples";
      /** Consecutive rows of {@link sampleColumns}. */
      readonly samples: Float64Array;
      /** Code 0 is success; code n is `codes[n - 1]`. Numbers are stable. */
      readonly codes: readonly string[];
    }
  | {
      readonly kind: "collected";
      readonly samples: Float64Array;
      readonly codes: readonly string[];
      /** CPU time since the start of the process, in milliseconds, at `atMs` on the clock of {@link clockMs}. */
      readonly cpuMs: number;
      readonly atMs: number;
      /** p99 of the event loop delay since the last boundary. */
      readonly eventLoopDelayP99Ms: number;
      /** Whether this is the last message, after `stop`. */
      readonly last: boolean;
    };

/** Columns of a sample. Times are on the clock of {@link clockMs}. */
export const sampleColumns = {
  dueMs: 0,
  sentMs: 1,
  /** Complete response or failure. */
  doneMs: 2,
  /** Size of the response body. */
  bytes: 3,
  code: 4,
} as const;
export const sampleWidth = Object.keys(sampleColumns).length;

/** Codes of requests that fail without a response. */
export const ownCodes = {
  timeout: "no response in time",
  tooManyOpen: "not sent: too many open",
  ended: "no response before the load ended",
} as const;

/** Monotonic clock that all processes of a machine share, in milliseconds. */
export function clockMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
