import { getPriority } from "node:os";
import { expect, test } from "vitest";
import { comparisonLoad } from "../../lab/load/run-load.ts";
import { requestsTo } from "./test-requests.ts";
import { startWorkers } from "./workers.ts";

test("a comparison runs its worker at normal priority", async () => {
  const { load, priority } = comparisonLoad({ concurrency: 2, seconds: 1 });
  expect(priority).toBe("usual");
  const workers = await startWorkers(2, requestsTo("http://127.0.0.1:9"), load, "usual");
  try {
    expect(workers.pids.map((pid) => getPriority(pid))).toEqual([getPriority(), getPriority()]);
  } finally {
    await workers.close();
  }
});
