import { getPriority } from "node:os";
import { expect, test } from "vitest";
import { comparisonLoad } from "../../lab/load/run-load.ts";
import { startWorkers } from "./workers.ts";

test("a comparison runs its worker at normal priority", async () => {
  const { load, priority } = comparisonLoad({ concurrency: 2, seconds: 1 });
  expect(priority).toBe("usual");
  const requests = {
    ...{ transport: "http" as const, url: "http://127.0.0.1:9", path: "/", headers: {} },
    requests: [{ headers: {}, body: new Uint8Array(1) }],
    imagesPerRequest: 1,
  };
  const workers = await startWorkers(2, requests, load, "usual");
  try {
    expect(workers.pids.map((pid) => getPriority(pid))).toEqual([getPriority(), getPriority()]);
  } finally {
    await workers.close();
  }
});
