import { clients, type LoadStudy } from "./study.ts";

/** One image per request from an increasing number of clients. */
export const concurrencyStudy: LoadStudy = {
  kind: "load",
  id: "concurrency",
  async run(run) {
    run.addResult({ study: "concurrency", environment: run.environment, notes: [] });
    for (const measured of run.endpoints) {
      for (const concurrency of run.grid.concurrency.concurrency) {
        await run.measure("concurrency", measured, { batch: 1, load: clients(concurrency) });
      }
    }
  },
};
