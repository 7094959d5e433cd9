import type { ProtocolPath } from "../../inference-image/src/contract/environment.ts";
import type { BenchRecord } from "./bench-record.ts";
import type { MetricsSource } from "./instance-metrics.ts";

/** One address where embeddings can be asked for, while it runs. */
export interface BenchTarget {
  readonly environment: string;
  readonly service: string;
  readonly path: ProtocolPath;
  /** `http://host:port`, or `host:port` for gRPC; reachable from here. */
  readonly url: string;
  /** Model name in requests; of the payload variants it is this with `_u8` and `_jpeg` in place of a backend's suffix. */
  readonly model: string;
  /** Sent as `Authorization: Bearer …` to this address only. */
  readonly apiKey?: string;
  /** Where the processes behind it count what they do, one for each; empty where that is not known. */
  readonly metrics: readonly MetricsSource[];
  /** `http://host:port` of the same Triton: model control and statistics. */
  readonly controlUrl?: string;
  /** Processes on this machine behind it (embedded runtime only). */
  readonly pids: readonly number[];
}

/** Everything that a run measures, while it runs. */
export interface OpenTargets {
  readonly runtime: BenchRecord["subject"]["runtime"];
  readonly targets: readonly BenchTarget[];
  readonly subject: Pick<BenchRecord["subject"], "environments" | "servers" | "gpu" | "price">;
  /** Whole sentences for the record. */
  readonly notes: readonly string[];
}
