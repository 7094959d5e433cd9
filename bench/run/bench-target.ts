import type { EndpointName } from "../../contract/environment.ts";
import type { RequiredHeader } from "../../contract/triton-flags.ts";
import type { BenchPath, BenchRecord, Payload } from "../record/bench-record.ts";
import type { GpuReading } from "./gpu-use.ts";
import type { MetricsSource } from "./instance-metrics.ts";

/** One address that serves embeddings, for as long as it is open. */
export interface BenchTarget {
  readonly environment: string;
  readonly service: string;
  readonly path: EndpointName;
  /** `http://host:port`, or `host:port` for gRPC; reachable from this machine. */
  readonly url: string;
  /** Model name in requests; the models of other payload formats have `_u8` or `_jpeg` in place of a backend's suffix. */
  readonly model: string;
  /** Payload formats that the server accepts. */
  readonly payloads: readonly Payload[];
  /** Bearer token, sent to this address only. */
  readonly apiKey?: string;
  /**
   * Metrics of the processes behind it, one each; empty if unknown. Those of a gateway include the Tritons that it
   * forwards to.
   */
  readonly metrics: readonly MetricsSource[];
  /** `http://host:port` of the same Triton: model control and statistics. */
  readonly controlUrl?: string;
  /** Header that its model control API requires; absent if none is required or the requirement is unknown. */
  readonly controlHeader?: RequiredHeader;
  /** Processes on this machine behind it (local simulation only). */
  readonly pids: readonly number[];
}

/** Everything that a run measures, for as long as it is open. */
export interface OpenTargets {
  readonly runtime: BenchRecord["subject"]["runtime"];
  readonly targets: readonly BenchTarget[];
  readonly subject: Pick<BenchRecord["subject"], "environments" | "servers" | "gpu" | "price">;
  /** Reads the GPUs of the environment's host; absent if they cannot be read. */
  readonly readGpus?: () => Promise<readonly GpuReading[]>;
  /** Complete sentences for the record. */
  readonly notes: readonly string[];
}

/** Combinations of payload format and serialization that a target accepts. */
export function benchPathsOf({ path, payloads }: Pick<BenchTarget, "path" | "payloads">) {
  return payloads.flatMap((payload): BenchPath[] => [
    { path, payload, serialization: "binary" },
    ...(path.endsWith("-http") && payload === "fp32"
      ? [{ path, payload, serialization: "json" } as const]
      : []),
  ]);
}
