import { availableParallelism } from "node:os";
import type { LoadShape } from "../../contract/load-shape.ts";
import type { PreparedRequests } from "../requests/prepared-requests.ts";
import { connectionLimit } from "./channels.ts";
import { LoadRun, newTotals } from "./load-run.ts";
import type { MeasuredLoad, MeasureOptions } from "./measured-load.ts";
import { startWorkers } from "./workers.ts";

/** CPU utilisation of a worker during the warm-up above which another worker is added. */
const busyWorkerCores = 0.75;

/** Measures one round of a load with new worker processes and connections: a warm-up, then a fixed number of windows. */
export async function measureLoad(
  requests: PreparedRequests,
  options: MeasureOptions,
): Promise<MeasuredLoad> {
  const totals = newTotals();
  const maximum = parallelRequests(options.load);
  let count = Math.min(options.workers ?? 1, maximum);
  for (;;) {
    const workers = await startWorkers(count, requests, options.load, options.priority ?? "raised");
    try {
      const run = new LoadRun(workers, requests, options, totals);
      const busiest = await run.warmUp();
      const mayGrow =
        options.workers === undefined && count < Math.min(maximum, availableParallelism());
      if (mayGrow && busiest > busyWorkerCores && !options.signal.aborted) {
        count += 1;
        await run.stop();
        continue;
      }
      return await run.measure();
    } finally {
      await workers.close();
    }
  }
}

/** Maximum number of concurrent requests or of connections, which bounds the number of workers. */
function parallelRequests(load: LoadShape): number {
  const requests = load.kind === "closed loop" ? load.concurrency : Number.POSITIVE_INFINITY;
  return Math.min(requests, connectionLimit(load) ?? requests);
}
