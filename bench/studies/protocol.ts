import { clients, type LoadStudy, type StudyPath, StudyUnavailable } from "./study.ts";

/** The same Triton and tensors over HTTP and over gRPC, in reverse order for every second batch size. */
export const protocolStudy: LoadStudy = {
  kind: "load",
  id: "protocol",
  async run(run) {
    const pairs = pairsOf(run.paths);
    if (pairs.length === 0) {
      throw new StudyUnavailable(
        "no Triton has both an HTTP and a gRPC endpoint, like onnx-http and onnx-grpc",
      );
    }
    run.keep({ study: "protocol", environment: run.environment, notes: [] });
    for (const [http, grpc] of pairs) {
      for (const [index, batch] of run.grid.batchSizes.entries()) {
        for (const at of index % 2 === 0 ? [http, grpc] : [grpc, http]) {
          await run.measure("protocol", at, { batch, load: clients(1) });
        }
      }
    }
  },
};

/** HTTP and gRPC endpoints of the same service and payload format. */
function pairsOf(paths: readonly StudyPath[]): readonly (readonly [StudyPath, StudyPath])[] {
  return paths.flatMap((http) => {
    const { target, path } = http;
    if (!path.path.endsWith("-http") || path.serialization === "json") return [];
    const grpc = paths.find(
      (other) =>
        other.target.service === target.service &&
        other.path.path === path.path.replace(/-http$/, "-grpc") &&
        other.path.payload === path.payload,
    );
    return grpc === undefined ? [] : [[http, grpc] as const];
  });
}
