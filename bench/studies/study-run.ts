import { benchPathName, type StudyId, type StudyResult } from "../record/bench-record.ts";
import type { BenchContext, CellOptions, MeasuredPath } from "../run/bench-run.ts";
import type { OpenTargets } from "../run/bench-target.ts";
import type { MemoryReading } from "./memory.ts";

/** How far each study goes. */
export interface StudyGrid {
  /** Images in a request: of `batch`, `protocol`, `serialization`. */
  readonly batchSizes: readonly number[];
  /** Clients; of `scaling`, for each GPU. */
  readonly concurrency: Readonly<
    Record<"concurrency" | "queue-delay" | "scaling" | "topology", readonly number[]>
  >;
  /** Of `queue-delay`, in microseconds. */
  readonly queueDelaysUs: readonly number[];
  /** Of `link`: 10^6 bits a second, in each direction. */
  readonly bandwidthsMbps: readonly number[];
  /** Of `link`: milliseconds there and back. */
  readonly roundTripsMs: readonly number[];
}

/** A path of a target whose answers were found right. */
export type StudyPath = MeasuredPath;

/** What a study of cells works with: one environment while it runs. */
export interface StudyRun {
  readonly environment: string;
  readonly open: OpenTargets;
  readonly context: BenchContext;
  readonly grid: StudyGrid;
  readonly paths: readonly StudyPath[];
  /** Memory of a service that does not run on this machine; what cannot be read is absent. */
  readonly readMemory?: (service: string) => Promise<MemoryReading>;
  /**
   * Measure a cell and keep it, whole or interrupted; where it cannot be measured, that is kept.
   *
   * @throws the reason of the context's signal, after an interrupt
   */
  measure(study: StudyId, at: StudyPath, options: Omit<CellOptions, "study">): Promise<void>;
  /** Keep that something failed, and tell it at once. */
  fail(line: string): void;
  /** Keep what a study found besides its cells. What is added to its lists later is kept too. */
  keep<Result extends StudyResult>(result: Result): Result;
}

/** The study cannot be made here; the message says why, in one line. */
export class StudyUnavailable extends Error {
  override readonly name = "StudyUnavailable";
}

/** A closed loop of some clients. */
export function clients(concurrency: number): CellOptions["load"] {
  return { kind: "closed loop", concurrency };
}

/** In words: `onnx-http of single-gpu`, for messages. */
export function placeOf({ target, path }: StudyPath): string {
  return `${benchPathName(path)} of ${target.environment}`;
}
