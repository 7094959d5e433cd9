import { z } from "zod";
import { otlpEndpoint, otlpEndpointRule, type ServerEnvName } from "./server-env.ts";

const endpoint = z.string().regex(otlpEndpoint, otlpEndpointRule);

/** Export of traces by the embed server and the Triton servers of an environment. */
export const tracing = z.strictObject({
  endpoint: endpoint.describe(
    "OpenTelemetry collector as the containers reach it, OTLP over HTTP: `http://collector.internal:4318`.",
  ),
  grpcEndpoint: endpoint
    .optional()
    .describe(
      "The same collector, OTLP over gRPC, for the embed server: `http://collector.internal:4317`. Triton exports over HTTP only. Default: `endpoint`.",
    ),
  ratio: z
    .number()
    .min(0)
    .max(1)
    .default(0.01)
    .describe(
      "Share of the traces that the embed server exports, besides those of failed requests and those that clients sample.",
    ),
});
export type Tracing = z.infer<typeof tracing>;

/** Settings with which an embed server exports traces under a name. */
export function tracingEnv(
  { endpoint: http, grpcEndpoint, ratio }: Tracing,
  service: string,
): Partial<Record<ServerEnvName, string>> {
  return {
    OTEL_EXPORTER_OTLP_ENDPOINT: grpcEndpoint ?? http,
    OTEL_EXPORTER_OTLP_PROTOCOL: grpcEndpoint === undefined ? "http/protobuf" : "grpc",
    OTEL_SERVICE_NAME: service,
    OTEL_TRACES_SAMPLER: "parentbased_traceidratio",
    OTEL_TRACES_SAMPLER_ARG: String(ratio),
  };
}
