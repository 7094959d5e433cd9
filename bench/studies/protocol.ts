import type { MeasuredEndpoint } from "../run/choose-endpoints.ts";
import { clients, type LoadStudy, StudyUnavailable } from "./study.ts";

/** The same Triton and tensors over HTTP and over gRPC, in reverse order for every second batch size. */
export const protocolStudy: LoadStudy = {
  kind: "load",
  id: "protocol",
  async run(run) {
    const pairs = pairsOf(run.endpoints);
    if (pairs.length === 0) {
      throw new StudyUnavailable(
        "no Triton has both an HTTP and a gRPC endpoint, like onnx-http and onnx-grpc",
      );
    }
    run.addResult({ study: "protocol", environment: run.environment, notes: [] });
    for (const [http, grpc] of pairs) {
      for (const [index, batch] of run.grid.batchSizes.entries()) {
        for (const measured of index % 2 === 0 ? [http, grpc] : [grpc, http]) {
          await run.measure("protocol", measured, { batch, load: clients(1) });
        }
      }
    }
  },
};

/** HTTP and gRPC endpoints of the same service and payload format. */
function pairsOf(
  endpoints: readonly MeasuredEndpoint[],
): readonly (readonly [MeasuredEndpoint, MeasuredEndpoint])[] {
  return endpoints.flatMap((http) => {
    const { target, endpoint } = http;
    if (!endpoint.endpoint.endsWith("-http") || endpoint.serialization === "json") return [];
    const grpc = endpoints.find(
      (other) =>
        other.target.service === target.service &&
        other.endpoint.endpoint === endpoint.endpoint.replace(/-http$/, "-grpc") &&
        other.endpoint.payload === endpoint.payload,
    );
    return grpc === undefined ? [] : [[http, grpc] as const];
  });
}
