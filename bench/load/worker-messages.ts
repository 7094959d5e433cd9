import type { LoadShape } from "../record/bench-record.ts";
import type { PreparedRequests } from "./prepared-requests.ts";

/** Of the processes that send: above that of a server on the same machine, where they may, or as any other's. */
export type WorkerPriority = "raised" | "usual";

/** What the bench and a worker, a process that sends requests, tell each other. */

export type ToWorker =
  | {
      readonly kind: "prepare";
      readonly requests: PreparedRequests;
      readonly load: LoadShape;
      /** This worker's number, and how many share the load. */
      readonly index: number;
      readonly workers: number;
      readonly priority: WorkerPriority;
    }
  /** @property atMs - On the clock of {@link clockMs}. */
  | { readonly kind: "start"; readonly atMs: number }
  /** Hand over what was seen since the last time. */
  | {
      readonly kind: "collect";
      /** A window ends here: what is told of the event loop begins anew. */
      readonly boundary: boolean;
    }
  /** Send no more, and wait so long for the answers to what was sent. */
  | { readonly kind: "stop"; readonly patienceMs: number };

export type FromWorker =
  | { readonly kind: "prepared" }
  /** Without being asked: many at once would take the worker too long. */
  | {
      readonly kind: "samples";
      /** Rows of {@link sampleColumns}, one after the other. */
      readonly samples: Float64Array;
      /** Code 0 is a good answer; code n is the n-th of these. Codes keep their numbers. */
      readonly codes: readonly string[];
    }
  | {
      readonly kind: "collected";
      readonly samples: Float64Array;
      readonly codes: readonly string[];
      /** Processor time since the start, in milliseconds, at `atMs` on the clock of {@link clockMs}. */
      readonly cpuMs: number;
      readonly atMs: number;
      /** Of the event loop since the last boundary. */
      readonly eventLoopDelayP99Ms: number;
      /** After `stop`: nothing more will come. */
      readonly last: boolean;
    };

/** Columns of a sample. The times are on the clock of {@link clockMs}. */
export const sampleColumns = {
  /** When it had to be sent. */
  dueMs: 0,
  /** When it was. */
  sentMs: 1,
  /** When its answer was whole, or it had failed. */
  doneMs: 2,
  /** Of the answer's body. */
  bytes: 3,
  code: 4,
} as const;
export const sampleWidth = Object.keys(sampleColumns).length;

/** Codes of requests that fail without a server's word. */
export const ownCodes = {
  timeout: "no answer in time",
  tooManyOpen: "not sent: too many open",
  ended: "no answer before the load ended",
} as const;

/** Milliseconds of the monotonic clock that all processes of a machine share. */
export function clockMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
