import type { GpuReading } from "../readings/gpu-use.ts";
import type { TargetEndpoint } from "../requests/target-endpoint.ts";
import type { MeasuredSubject, TargetKind } from "../subject/subject.ts";

/** Where requests go, for as long as it is open: local processes, a deployed environment, or given addresses. */
export interface OpenTarget {
  readonly target: TargetKind;
  readonly targets: readonly TargetEndpoint[];
  readonly subject: MeasuredSubject;
  /** Reads the GPUs of the environment's host; absent if they cannot be read. */
  readonly readGpus?: () => Promise<readonly GpuReading[]>;
  /** Complete sentences for the record. */
  readonly notes: readonly string[];
  /** Closes the connections, and stops what was started. */
  close(): Promise<void>;
}
