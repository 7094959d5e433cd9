import { clients, type EnvironmentStudy, optionalEndpoint, requestedOr } from "./study.ts";
import { measureVariants, type Variant } from "./variant-studies.ts";

/** The same load per GPU on different numbers of GPUs. Efficiency is the throughput of N GPUs divided by N times that of one. */
export const scalingStudy: EnvironmentStudy = {
  kind: "environment",
  id: "scaling",
  endpointsOf: requestedOr(optionalEndpoint("embed-http", "jpeg")),
  run: (run) => measureVariants("scaling", run, measureScaling),
};

/** Measures one variant with the same number of clients per GPU. */
export async function measureScaling({ run, conditions }: Variant): Promise<void> {
  for (const measured of run.endpoints.filter(
    ({ endpoint }) => endpoint.serialization === "binary",
  )) {
    for (const perGpu of run.grid.concurrency.scaling) {
      const load = clients(perGpu * conditions.gpus);
      await run.measure("scaling", measured, { batch: 1, load, conditions });
    }
  }
}
