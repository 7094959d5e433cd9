import { clients, type EnvironmentStudy, optionalEndpoint, requestedOr } from "./study.ts";
import { measureVariants, type Variant } from "./variant-studies.ts";

/** One Triton across all GPUs against one Triton per GPU. */
export const topologyStudy: EnvironmentStudy = {
  kind: "environment",
  id: "topology",
  endpointsOf: requestedOr(optionalEndpoint("embed-http", "jpeg")),
  run: (run) => measureVariants("topology", run, measureTopology),
};

/** Measures one topology through its gateway, which alone reaches all GPUs with one Triton per GPU. */
export async function measureTopology({ run, conditions }: Variant): Promise<void> {
  for (const measured of run.endpoints.filter(
    ({ endpoint }) => endpoint.endpoint === "embed-http",
  )) {
    for (const concurrency of run.grid.concurrency.topology) {
      await run.measure("topology", measured, { batch: 1, load: clients(concurrency), conditions });
    }
  }
}
