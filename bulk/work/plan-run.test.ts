import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { readJob } from "../job/job.ts";
import { openStore } from "../store/open-store.ts";
import { temporaryFolder } from "../test-job.ts";
import { planRun } from "./plan-run.ts";
import { type BulkVariables, readBulkEnv } from "./settings.ts";

let source: string;
let job: string;
beforeEach(async () => {
  [source, job] = [await temporaryFolder(), await temporaryFolder()];
  await writeFile(join(source, "a.jpg"), "a");
});

const plan = (variables: BulkVariables) =>
  planRun(readBulkEnv({ BULK_JOB: job, BULK_SOURCE: source, BULK_WORKERS: "2", ...variables }), {
    pollMs: 10,
  });
const planned = async () => await readJob(await openStore(job));

test("worker 0 plans once per run", async () => {
  await plan({ BULK_RUN: "monday", BULK_USD_PER_HOUR: "0.5", MODELS: "dinov2-small" });
  const first = await planned();
  expect(first).toMatchObject({ run: "monday", usdPerWorkerHour: 0.5, source });
  expect(first.model.name).toBe("dinov2-small");
  await writeFile(join(source, "b.jpg"), "b");
  // a restarted pod of the same run
  await plan({ BULK_RUN: "monday", MODELS: "dinov2-small" });
  expect(await planned()).toEqual(first);
  await plan({ BULK_RUN: "tuesday", MODELS: "dinov2-small" });
  expect((await planned()).shards).toHaveLength(2);
});

test("another worker waits for the plan of its run", async () => {
  await plan({ BULK_RUN: "monday" });
  let isDone = false;
  const waiting = plan({ BULK_RUN: "tuesday", JOB_COMPLETION_INDEX: "1" }).then(() => {
    isDone = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(isDone).toBe(false);
  await plan({ BULK_RUN: "tuesday" });
  await waiting;
});

test("without a source, nothing is planned; a source requires the run", async () => {
  await plan({ BULK_SOURCE: "" });
  await expect(planned()).rejects.toThrow("must contain a job");
  expect(() => plan({})).toThrow("BULK_RUN must be set with BULK_SOURCE");
});
