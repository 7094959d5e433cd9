import { createServer } from "node:http";
import { afterEach, beforeEach, expect, test } from "vitest";
import { deployedModelConfig } from "../../contract/deployed-model-config.ts";
import { openclipVitB32 } from "../../contract/model-signature.ts";
import {
  type TestRepository,
  testRepository,
} from "../../inference-image/emulator/test-repository.ts";
import { startTritonEmulator } from "../../inference-image/emulator/triton-emulator.ts";
import type { StudyResult } from "../record/bench-record.ts";
import { type BenchEvent, defaultSettings } from "../run/bench-run.ts";
import { studyQueueDelay } from "./queue-delay-study.ts";
import type { StudyRun } from "./study-run.ts";

const model = openclipVitB32.name;
const own = openclipVitB32.maxQueueDelayMicroseconds;
const closers: (() => unknown)[] = [];
let repository: TestRepository;
beforeEach(async () => {
  const { text } = deployedModelConfig(model, "single-gpu", {});
  repository = await testRepository({ [`${model}/configs/single-gpu.pbtxt`]: text });
  closers.push(() => repository.remove());
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** A Triton that loads a model so many times, and then refuses to. */
async function triton(loads = Number.POSITIVE_INFINITY) {
  const flags = {
    "model-config-name": "single-gpu",
    "model-control-mode": "explicit" as const,
    "load-model": [model],
    "allow-metrics": false,
  };
  const server = await startTritonEmulator(repository.flags(flags), { log: () => {} });
  closers.push(() => server.stop());
  let asked = 0;
  const before = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (request.url?.endsWith("/load") && ++asked > loads) {
      response.writeHead(500).end('{"error":"out of memory"}');
      return;
    }
    const answer = await fetch(`http://127.0.0.1:${server.ports.http}${request.url}`, {
      method: request.method,
      ...(request.method === "POST" ? { body: Buffer.concat(chunks) } : {}),
    });
    response.writeHead(answer.status).end(Buffer.from(await answer.arrayBuffer()));
  });
  await new Promise<void>((resolve) => before.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    before.closeAllConnections();
    before.close();
  });
  const address = before.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return `http://127.0.0.1:${port}`;
}

async function delayOf(url: string): Promise<unknown> {
  const answer = await fetch(`${url}/v2/models/${model}/config`);
  const config = (await answer.json()) as { readonly dynamic_batching: Record<string, unknown> };
  return config.dynamic_batching.max_queue_delay_microseconds;
}

/** The study of a Triton's model with one other delay; the load of it is `measure`. */
function study(url: string, measure: () => Promise<void>, signal = new AbortController().signal) {
  const failures: string[] = [];
  const kept: StudyResult[] = [];
  const events: BenchEvent[] = [];
  const held: string[] = [];
  const target: StudyRun["paths"][number]["target"] = {
    environment: "e",
    service: "triton-onnx",
    path: "onnx-http",
    url,
    controlUrl: url,
    model,
    payloads: ["fp32"],
    metrics: [],
    pids: [],
  };
  const concurrency = { concurrency: [1], "queue-delay": [1], scaling: [1], topology: [1] };
  const run: StudyRun = {
    environment: "e",
    open: {
      runtime: "endpoints",
      targets: [target],
      subject: { environments: [], servers: [] },
      notes: [],
    },
    context: {
      settings: {
        ...defaultSettings,
        paths: [],
        images: { source: "samples", count: 1, meanBytes: 1 },
      },
      images: [],
      signal,
      hold: (work) => {
        held.push(work);
        return () => void held.splice(held.indexOf(work), 1);
      },
      onEvent: (event) => events.push(event),
    },
    grid: {
      batchSizes: [1],
      concurrency,
      queueDelaysUs: [9_000],
      bandwidthsMbps: [],
      roundTripsMs: [],
    },
    paths: [{ target, path: { path: "onnx-http", payload: "fp32", serialization: "binary" } }],
    measure,
    fail: (line) => failures.push(line),
    keep(result) {
      kept.push(result);
      return result;
    },
  };
  return { run, failures, kept, events, held };
}

/** A load in which Ctrl-C is pressed. */
function interrupted(controller: AbortController) {
  return async () => {
    controller.abort();
    controller.signal.throwIfAborted();
  };
}

test("says that the delay was put back when it was", async () => {
  const url = await triton();
  const { run, failures, kept, held } = study(url, async () => {
    expect(await delayOf(url)).toBe(9_000);
    expect(held).toEqual([`putting back the queue delay of ${model} at ${url}`]);
  });
  await studyQueueDelay(run);
  expect(await delayOf(url)).toBe(own);
  expect(kept[0]?.notes).toEqual([
    `onnx-http of e has a queue delay of ${own} µs by itself; it was loaded so again afterwards.`,
  ]);
  expect(failures).toEqual([]);
  expect(held).toEqual([]);
});

test("puts the delay back after an interrupt, and says that it does", async () => {
  const url = await triton();
  const controller = new AbortController();
  const { run, events } = study(url, interrupted(controller), controller.signal);
  await expect(studyQueueDelay(run)).rejects.toThrow();
  expect(await delayOf(url)).toBe(own);
  expect(events.at(-1)).toEqual({
    kind: "notice",
    text: `interrupted: putting back the queue delay of ${model} at ${url}, wait`,
  });
});

test("says what the server still has where the delay cannot be put back, also after an interrupt", async () => {
  // once as it is, once with the other delay
  const url = await triton(2);
  const controller = new AbortController();
  const { run, failures, kept } = study(url, interrupted(controller), controller.signal);
  await expect(studyQueueDelay(run)).rejects.toThrow();
  expect(await delayOf(url)).toBe(9_000);
  expect(failures).toEqual([
    `queue-delay of onnx-http of e: ${model} at ${url} still has a queue delay of 9000 µs: ${url} did not load ${model}: out of memory; put ${own} µs back: unload the model and load it again, or start its Triton anew`,
  ]);
  expect(kept[0]?.notes).toEqual([
    `onnx-http of e has a queue delay of ${own} µs by itself; it could not be loaded so again.`,
  ]);
});
