import { setTimeout } from "node:timers/promises";
import { defaultModel } from "../../contract/models/index.ts";
import { bulkJob, keys, readJson } from "../job/job.ts";
import { planJob } from "../job/plan.ts";
import { listSource } from "../job/source.ts";
import { openStore } from "../store/open-store.ts";
import { StoreError } from "../store/store.ts";
import type { BulkEnv } from "./settings.ts";

/** Limits of the shards that a worker plans. */
export const plannedShards = { shardImages: 2_000, shardBytes: 256 * 1024 * 1024 } as const;

/**
 * Plans the job as worker 0, once per run, or waits for that plan as another worker. Without BULK_SOURCE, the job is planned already.
 *
 * @throws {StoreError} if the source or the job's store cannot be used, or worker 0 does not plan in time
 */
export async function planRun(
  env: BulkEnv,
  { signal, pollMs = 2_000 }: { readonly signal?: AbortSignal; readonly pollMs?: number } = {},
): Promise<void> {
  const { BULK_SOURCE: source, BULK_RUN: run } = env;
  if (source === undefined) return;
  const store = await openStore(env.BULK_JOB, env.BULK_PATIENCE_SECONDS);
  const isPlanned = async () => (await readJson(store, keys.job, bulkJob))?.run === run;
  const deadline = Date.now() + env.BULK_PLAN_SECONDS * 1000;
  while (!(await isPlanned())) {
    if (env.JOB_COMPLETION_INDEX === 0) {
      await planJob({
        store,
        source,
        entries: listSource(source, env.BULK_PATIENCE_SECONDS),
        model: env.MODELS?.[0] ?? defaultModel,
        vectors: env.BULK_VECTORS,
        usdPerWorkerHour: env.BULK_USD_PER_HOUR,
        run,
        ...plannedShards,
      });
      return;
    }
    if (Date.now() > deadline) {
      const limit = `BULK_PLAN_SECONDS ${env.BULK_PLAN_SECONDS}`;
      throw new StoreError("missing", `${store.address}: worker 0 has not planned within ${limit}`);
    }
    await setTimeout(pollMs, undefined, { signal });
  }
}
