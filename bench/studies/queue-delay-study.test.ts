import { createServer } from "node:http";
import { expect, onTestFinished, test } from "vitest";
import type { BenchEvent } from "../measure/bench-events.ts";
import type { StudyResult } from "../record/study-result.ts";
import { testContext, testTarget } from "../run/test-run.ts";
import { measureQueueDelays } from "./queue-delay-study.ts";
import { delayOf, queueModel, startQueueServer } from "./test-queue-delay.ts";
import { testGrid, testStudyRun } from "./test-study-run.ts";

const { name: model, maxQueueDelayMicroseconds: own } = queueModel;

/** Triton that loads a model a number of times and then fails. */
async function triton(loads = Number.POSITIVE_INFINITY) {
  const url = await startQueueServer();
  let loadRequests = 0;
  const before = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (request.url?.endsWith("/load") && ++loadRequests > loads) {
      response.writeHead(500).end('{"error":"out of memory"}');
      return;
    }
    const answer = await fetch(`${url}${request.url}`, {
      method: request.method,
      ...(request.method === "POST" ? { body: Buffer.concat(chunks) } : {}),
    });
    response.writeHead(answer.status).end(Buffer.from(await answer.arrayBuffer()));
  });
  await new Promise<void>((resolve) => before.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    before.closeAllConnections();
    before.close();
  });
  const address = before.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return `http://127.0.0.1:${port}`;
}

/** Study of one modified queue delay; `measure` replaces its load. */
function study(url: string, measure: () => Promise<void>, signal = new AbortController().signal) {
  const failures: string[] = [];
  const kept: StudyResult[] = [];
  const events: BenchEvent[] = [];
  const held: string[] = [];
  const target = testTarget({ environment: "e", url, controlUrl: url, model });
  const endpoint = { endpoint: "onnx-http", payload: "fp32", serialization: "binary" } as const;
  const run = testStudyRun([{ target, endpoint }], {
    context: testContext({
      signal,
      hold: (work) => {
        held.push(work);
        return () => void held.splice(held.indexOf(work), 1);
      },
      onEvent: (event) => events.push(event),
    }),
    grid: { ...testGrid, queueDelaysUs: [9_000] },
    measure,
    fail: (line) => failures.push(line),
    addResult(result) {
      kept.push(result);
      return result;
    },
  });
  return { run, failures, kept, events, held };
}

/** Interrupted load. */
function interrupted(controller: AbortController) {
  return async () => {
    controller.abort();
    controller.signal.throwIfAborted();
  };
}

test("records that the delay was restored", async () => {
  const url = await triton();
  const { run, failures, kept, held } = study(url, async () => {
    expect(await delayOf(url)).toBe(9_000);
    expect(held).toEqual([`restoring the queue delay of ${model} at ${url}`]);
  });
  await measureQueueDelays(run);
  expect(await delayOf(url)).toBe(own);
  expect(kept[0]?.notes).toEqual([
    `The original queue delay of onnx-http of e is ${own} µs; it was restored afterwards.`,
  ]);
  expect(failures).toEqual([]);
  expect(held).toEqual([]);
});

test("restores the delay after an interrupt and reports it", async () => {
  const url = await triton();
  const controller = new AbortController();
  const { run, events } = study(url, interrupted(controller), controller.signal);
  await expect(measureQueueDelays(run)).rejects.toThrow();
  expect(await delayOf(url)).toBe(own);
  expect(events.at(-1)).toEqual({
    kind: "notice",
    text: `interrupted: restoring the queue delay of ${model} at ${url}; please wait`,
  });
});

test("records the server's delay if it cannot be restored, also after an interrupt", async () => {
  // one load with the original delay, one with the modified delay
  const url = await triton(2);
  const controller = new AbortController();
  const { run, failures, kept } = study(url, interrupted(controller), controller.signal);
  await expect(measureQueueDelays(run)).rejects.toThrow();
  expect(await delayOf(url)).toBe(9_000);
  expect(failures).toEqual([
    `queue-delay of onnx-http of e: ${model} at ${url} still has a queue delay of 9000 µs: ${url} did not load ${model}: out of memory; restore ${own} µs: unload and load the model, or restart its Triton`,
  ]);
  expect(kept[0]?.notes).toEqual([
    `The original queue delay of onnx-http of e is ${own} µs; it could not be restored: set max_queue_delay_microseconds to ${own} µs again.`,
  ]);
});
