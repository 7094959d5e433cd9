import { type handleUnaryCall, status, type UntypedServiceImplementation } from "@grpc/grpc-js";
import type { ModelRegistry } from "./model-registry.ts";

interface HealthRequest {
  readonly service: string;
}
interface HealthResponse {
  readonly status: "SERVING" | "NOT_SERVING" | "SERVICE_UNKNOWN";
}

/** Health of the server, of the inference service, and of each model by name. */
export function healthHandlers(registry: ModelRegistry): UntypedServiceImplementation {
  const statusOf = (service: string): HealthResponse["status"] => {
    const isServer = service === "" || service === "inference.GRPCInferenceService";
    if (isServer) return registry.ready ? "SERVING" : "NOT_SERVING";
    return registry.modelReady(service) ? "SERVING" : "SERVICE_UNKNOWN";
  };
  const check: handleUnaryCall<HealthRequest, HealthResponse> = (call, callback) => {
    const current = statusOf(call.request.service);
    if (current === "SERVICE_UNKNOWN") {
      callback({ code: status.NOT_FOUND, details: `unknown service '${call.request.service}'` });
    } else {
      callback(null, { status: current });
    }
  };
  return { Check: check };
}
