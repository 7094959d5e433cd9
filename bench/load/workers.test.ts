import { getPriority } from "node:os";
import { expect, test } from "vitest";
import { nullRequests } from "./compare-generators.ts";
import { loadBesidePeers } from "./run-load.ts";
import { startWorkers } from "./workers.ts";

test("beside other programs a worker has no higher priority than they have", async () => {
  const { load, priority } = loadBesidePeers({ concurrency: 2, seconds: 1 });
  expect(priority).toBe("usual");
  const workers = await startWorkers(2, nullRequests("http://127.0.0.1:9", 1), load, "usual");
  try {
    expect(workers.pids.map((pid) => getPriority(pid))).toEqual([getPriority(), getPriority()]);
  } finally {
    await workers.close();
  }
});
