import type { ServerRole } from "../../artefact/simulation-types.ts";
import type { BenchEndpoint, PayloadFormat } from "../../contract/bench-endpoint.ts";
import type { EndpointName } from "../../contract/environment.ts";
import type { ModelTower } from "../../contract/model-spec.ts";
import type { RequiredHeader } from "../../contract/triton-flags.ts";

/** Process with a metrics endpoint. */
export interface MetricsSource {
  readonly name: string;
  /** Kind of server, which determines the metric names. */
  readonly role: ServerRole;
  /** `http://host:port`; absent without a metrics endpoint. */
  readonly url?: string;
}

/** One address that serves embeddings, for as long as it is open. */
export interface TargetEndpoint extends ModelTower {
  readonly environment: string;
  readonly service: string;
  readonly endpoint: EndpointName;
  /** `http://host:port`, or `host:port` for gRPC; reachable from this machine. */
  readonly url: string;
  /** Name of the measured tower in requests to a Triton server. For an image tower, the model with FP32 input. */
  readonly model: string;
  /** Model kind of the ensemble with which a Triton server decodes JPEG files; absent without DALI. */
  readonly jpegKind?: "dali" | "dali-trt";
  /** Precision in which the server computes, if it is not the default of its kind. Embeddings in FP16 are compared by direction only. */
  readonly precision?: "fp16";
  /** Payload formats that the server accepts. */
  readonly payloads: readonly PayloadFormat[];
  /** Bearer token, sent to this address only. */
  readonly apiKey?: string;
  /**
   * Metrics endpoints of the processes that serve this endpoint, one per process; empty if unknown. A gateway's include those
   * of its Triton servers.
   */
  readonly metrics: readonly MetricsSource[];
  /** URL of the same Triton server, `http://host:port`, for model control and statistics. */
  readonly controlUrl?: string;
  /** Header that its model control API requires; absent if none is required or the requirement is unknown. */
  readonly controlHeader?: RequiredHeader;
  /** Ids of the processes on this machine that serve the endpoint (local simulation only). */
  readonly pids: readonly number[];
}

/** Combinations of payload format and serialization that a target accepts. */
export function payloadEndpointsOf({
  endpoint,
  payloads,
}: Pick<TargetEndpoint, "endpoint" | "payloads">) {
  return payloads.flatMap((payload): BenchEndpoint[] => [
    { endpoint, payload, serialization: "binary" },
    ...(endpoint.endsWith("-http") && payload === "fp32"
      ? [{ endpoint, payload, serialization: "json" } as const]
      : []),
  ]);
}
