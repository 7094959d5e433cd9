import { openInferenceClient } from "../../client/embedding/inference-client.ts";
import { requestedModel } from "../../contract/environment.ts";
import type { EndpointTarget, TargetService } from "../../target/service/target-service.ts";

/** Opens the published client of an endpoint for a model; the mode `remote` prevents a local fallback. */
export function openEndpointClient(
  { workload, apiKey }: TargetService,
  { endpoint, url, spec }: Pick<EndpointTarget, "endpoint" | "url" | "spec">,
  timeoutMs: number,
) {
  const common = {
    mode: "remote",
    model: spec,
    tritonModel: requestedModel(workload.service, spec.name),
    tritonTextModel: requestedModel(workload.service, spec.name, "text"),
    timeoutMs,
  } as const;
  if (endpoint.protocol === "embed-http") {
    return openInferenceClient({ ...common, backend: "embed", serviceUrl: url, apiKey });
  }
  return endpoint.protocol === "oip-grpc"
    ? openInferenceClient({ ...common, backend: "triton_grpc", tritonGrpcUrl: url })
    : openInferenceClient({ ...common, backend: "triton", serviceUrl: url });
}
