import { clients, type LoadStudy } from "./study.ts";

/** One client with larger and larger requests. */
export const batchStudy: LoadStudy = {
  kind: "load",
  id: "batch",
  async run(run) {
    run.addResult({ study: "batch", environment: run.environment, notes: [] });
    for (const at of run.endpoints) {
      for (const batch of run.grid.batchSizes) {
        await run.measure("batch", at, { batch, load: clients(1) });
      }
    }
  },
};
