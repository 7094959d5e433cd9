import { availableParallelism } from "node:os";
import type { LoadShape } from "../record/bench-record.ts";
import { LoadRun, newTotals } from "./load-run.ts";
import type { MeasuredLoad, MeasureOptions } from "./measured-load.ts";
import type { PreparedRequests } from "./prepared-requests.ts";
import { startWorkers } from "./workers.ts";

/** A worker that uses more of a core while warming up gets another one beside it. */
const busyWorkerCores = 0.75;

/**
 * Load a server and measure it: warm up until stable, then windows until enough of them agree.
 *
 * @throws {UserError} one line where no request could be sent at all.
 */
export async function measureLoad(
  requests: PreparedRequests,
  options: MeasureOptions,
): Promise<MeasuredLoad> {
  const totals = newTotals();
  const most = parallelRequests(options.load);
  let count = Math.min(options.workers ?? 1, most);
  for (;;) {
    const workers = await startWorkers(count, requests, options.load, options.priority ?? "raised");
    try {
      const run = new LoadRun(workers, requests, options, totals);
      const busiest = await run.warmUp();
      const mayGrow =
        options.workers === undefined && count < Math.min(most, availableParallelism());
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

/** Requests that can be open at the same time: more workers than these have nothing to do. */
function parallelRequests(load: LoadShape): number {
  return load.kind === "closed loop" ? load.concurrency : Number.POSITIVE_INFINITY;
}
