import { clients, type LoadStudy } from "./study.ts";

/** One client with increasing images per request. */
export const batchStudy: LoadStudy = {
  kind: "load",
  id: "batch",
  async run(run) {
    run.addResult({ study: "batch", environment: run.environment, notes: [] });
    for (const measured of run.endpoints) {
      for (const batch of run.grid.batchSizes) {
        await run.measure("batch", measured, { batch, load: clients(1) });
      }
    }
  },
};
