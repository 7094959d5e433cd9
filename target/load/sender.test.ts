import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Connection, ConnectionEvents, OpenConnection } from "./connection.ts";
import { createSender, type Sender, type SenderOptions } from "./sender.ts";
import { clockMs, ownCodes, sampleColumns, sampleWidth } from "./worker-messages.ts";

interface Sent {
  readonly request: number;
  readonly connection: number;
}

/** Test connections; `act` handles each request. */
function connections(act: (events: ConnectionEvents, sent: Sent) => void) {
  const sent: Sent[] = [];
  let opened = 0;
  const open: OpenConnection = (events): Connection => {
    const connection = opened++;
    return {
      send(request) {
        const one = { request, connection };
        sent.push(one);
        act(events, one);
      },
      abandon: (code) => events.onFailure(code),
      close() {},
    };
  };
  return { open, sent };
}

const afterMs = (ms: number) => (events: ConnectionEvents) => {
  setTimeout(() => events.onAnswer("", 7), ms);
};
const constant = { kind: "open loop", arrivals: "constant", ratePerSecond: 100, seed: 0 } as const;

/** Sends for `ms` milliseconds after the first request and returns the samples. */
async function send(
  ms: number,
  { open, sent }: ReturnType<typeof connections>,
  options: Partial<SenderOptions> = {},
) {
  const sender = createSender({
    open,
    requests: 3,
    load: { kind: "closed loop", concurrency: 2 },
    index: 0,
    workers: 1,
    ...options,
  });
  sender.start(clockMs() + 5);
  await expect.poll(() => sent.length).toBeGreaterThan(0);
  await sleep(ms);
  await sender.stop(AbortSignal.timeout(1_000));
  return samplesOf(sender);
}

function samplesOf(sender: Sender) {
  const rows = sender.take();
  return Array.from({ length: rows.length / sampleWidth }, (_, i) => {
    const column = (name: keyof typeof sampleColumns) =>
      rows[i * sampleWidth + sampleColumns[name]]!;
    return {
      dueMs: column("dueMs"),
      sentMs: column("sentMs"),
      doneMs: column("doneMs"),
      bytes: column("bytes"),
      code: sender.codes[column("code") - 1] ?? "",
    };
  });
}

test("a closed-loop client sends its next request after the previous response", async () => {
  const server = connections(afterMs(20));
  const startedMs = clockMs();
  const samples = await send(110, server);
  const most = 2 * (1 + (clockMs() - startedMs) / 19);
  expect(new Set(server.sent.map(({ connection }) => connection)).size).toBe(2);
  expect(samples).toHaveLength(server.sent.length);
  // upper bound of sequential responses in the elapsed time
  expect(samples.length).toBeLessThanOrEqual(most);
  for (const { dueMs, sentMs } of samples) expect(sentMs).toBe(dueMs);
});

test("the prepared requests are sent in order, repeatedly", async () => {
  const server = connections(afterMs(5));
  await send(80, server, { load: { kind: "closed loop", concurrency: 1 } });
  expect(server.sent.slice(0, 4).map(({ request }) => request)).toEqual([0, 1, 2, 0]);
});

test("workers share the clients of a closed loop", async () => {
  const clients = async (index: number) => {
    const server = connections(afterMs(5));
    await send(40, server, { load: { kind: "closed loop", concurrency: 5 }, index, workers: 3 });
    return new Set(server.sent.map(({ connection }) => connection)).size;
  };
  expect(await Promise.all([0, 1, 2].map(clients))).toEqual([2, 2, 1]);
});

test("an open loop does not wait for responses and opens connections as needed", async () => {
  const server = connections(afterMs(100));
  const samples = await send(300, server, { load: constant });
  expect(samples.length).toBeGreaterThan(10);
  expect(new Set(server.sent.map(({ connection }) => connection)).size).toBeGreaterThan(5);
});

test("the latency of a request that is sent late starts when it was due", async () => {
  let blocked = false;
  const server = connections((events) => {
    // blocks the generator
    const untilMs = clockMs() + (blocked ? 0 : 150);
    blocked = true;
    while (clockMs() < untilMs);
    setTimeout(() => events.onAnswer("", 0), 1);
  });
  const samples = await send(300, server, { load: constant });
  // requests due every 10 ms while the generator was blocked
  const late = samples.filter(({ dueMs, sentMs }) => sentMs - dueMs > 20);
  expect(late.length).toBeGreaterThanOrEqual(10);
  for (const [i, { dueMs }] of samples.slice(1).entries()) {
    expect(dueMs - (samples[i]?.dueMs ?? 0)).toBeCloseTo(10);
  }
});

test("requests beyond the limit of outstanding requests are counted, not sent", async () => {
  const server = connections(afterMs(2_000));
  const sender = createSender({
    open: server.open,
    requests: 1,
    load: constant,
    index: 0,
    workers: 1,
    openLimit: 3,
  });
  sender.start(clockMs());
  await expect.poll(() => server.sent.length).toBe(3);
  await sleep(200);
  await sender.stop(AbortSignal.abort());
  const codes = samplesOf(sender).map(({ code }) => code);
  expect(server.sent).toHaveLength(3);
  expect(codes.filter((code) => code === ownCodes.tooManyOpen).length).toBeGreaterThan(5);
  expect(codes.filter((code) => code === ownCodes.ended)).toHaveLength(3);
});

test("a request without a timely response fails and its client continues", async () => {
  const server = connections(() => {});
  const samples = await send(900, server, {
    load: { kind: "closed loop", concurrency: 1 },
    timeoutMs: 50,
  });
  expect(samples[0]?.code).toBe(ownCodes.timeout);
  expect(server.sent.length).toBeGreaterThan(1);
});

test("a client pauses after a refused connection", async () => {
  const server = connections((events) => {
    setImmediate(() => events.onFailure("ECONNREFUSED"));
  });
  const startedMs = clockMs();
  await send(250, server, { load: { kind: "closed loop", concurrency: 1 } });
  expect(server.sent.length).toBeLessThanOrEqual(1 + (clockMs() - startedMs) / 99);
});
