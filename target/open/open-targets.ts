import type { GpuReading } from "../readings/gpu-use.ts";
import type { BenchTarget } from "../requests/bench-target.ts";
import type { MeasuredSubject, TargetKind } from "../subject/subject.ts";

/** Everything that a run measures, for as long as it is open. */
export interface OpenTargets {
  readonly target: TargetKind;
  readonly targets: readonly BenchTarget[];
  readonly subject: MeasuredSubject;
  /** Reads the GPUs of the environment's host; absent if they cannot be read. */
  readonly readGpus?: () => Promise<readonly GpuReading[]>;
  /** Complete sentences for the record. */
  readonly notes: readonly string[];
}
