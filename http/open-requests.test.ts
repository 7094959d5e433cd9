import { once } from "node:events";
import { type AddressInfo, connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import Fastify, { type FastifyInstance } from "fastify";
import { afterEach, expect, test } from "vitest";
import { trackRequests } from "./drain.ts";
import { limitUnreadResponses } from "./open-requests.ts";

let app: FastifyInstance;
const ended: number[] = [];
let handled = 0;
/** Completes the requests of `/held`. */
let release = () => {};

async function open(timeoutMs?: number) {
  app = Fastify();
  limitUnreadResponses(app);
  if (timeoutMs !== undefined) app.server.timeout = timeoutMs;
  const requests = trackRequests(app, (_request, _reply, status) => ended.push(status));
  const large = Buffer.alloc(30_000_000, "x");
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  app.get("/count", async () => ({ request: handled++ }));
  app.get("/large", async () => large);
  app.get("/slow", () => sleep(1_500, "done"));
  app.get("/held", async () => {
    handled += 1;
    await held;
    return "done";
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  return requests;
}

afterEach(async () => {
  release();
  app.server.closeAllConnections();
  await app.close();
  ended.length = 0;
  handled = 0;
});

/** Pipelines requests on a new connection, whose responses are read from `resume()` on. */
async function pipelined(path: string, count: number) {
  const socket = connect((app.server.address() as AddressInfo).port, "127.0.0.1");
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.on("error", () => {});
  let text = "";
  await once(socket, "connect");
  socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`.repeat(count));
  const read = () =>
    socket.on("data", (data) => {
      text += data.toString("latin1");
    });
  return { socket, closed, read, text: () => text };
}

test("pipelined requests are answered in their order", async () => {
  await open();
  const { read, text } = await pipelined("/count", 60);
  read();
  await expect.poll(() => text().match(/"request":\d+/g)?.length).toBe(60);
  expect(
    text()
      .match(/(?<="request":)\d+/g)
      ?.map(Number),
  ).toEqual([...Array(60).keys()]);
  expect(text()).not.toMatch(/connection: close/i);
});

test("a connection with 100 requests without a response closes after the last of them", async () => {
  await open();
  const { read, text, closed } = await pipelined("/count", 2_000);
  read();
  await closed;
  expect(text().match(/HTTP\/1.1 200 OK/g)).toHaveLength(100);
  expect(text().match(/connection: close/gi)).toHaveLength(1);
  expect(handled).toBe(100);
});

test("four requests of a connection are handled at a time", async () => {
  await open();
  const { read, text } = await pipelined("/held", 20);
  read();
  await expect.poll(() => handled).toBe(4);
  await sleep(100);
  expect(handled).toBe(4);
  release();
  await expect.poll(() => text().match(/HTTP\/1.1 200 OK/g)?.length).toBe(20);
});

test("requests that wait for earlier responses end with their connection", async () => {
  const requests = await open();
  const { socket } = await pipelined("/held", 20);
  await expect.poll(() => handled).toBe(4);
  socket.destroy();
  await expect.poll(() => ended).toEqual([499, 499, 499, 499]);
  await requests.answered();
  release();
  await sleep(50);
  expect(handled).toBe(4);
});

test("a client that stops reading is disconnected after the timeout", async () => {
  await open(300);
  const stalled = await pipelined("/large", 1);
  stalled.socket.pause();
  await expect.poll(() => ended, { timeout: 5_000 }).toEqual([499]);
  stalled.socket.resume();
  await stalled.closed;
});

test("a client that reads slowly, or waits for a slow response, stays connected", async () => {
  await open(1_000);
  const slow = await pipelined("/slow", 3);
  slow.read();
  const reader = await pipelined("/large", 1);
  reader.socket.pause();
  let bytes = 0;
  while (bytes < 30_000_000 && !reader.socket.destroyed) {
    await sleep(10);
    bytes += (reader.socket.read() as Buffer | null)?.length ?? 0;
  }
  expect(bytes).toBeGreaterThan(30_000_000);
  await expect.poll(() => slow.text().match(/HTTP\/1.1 200 OK/g)?.length).toBe(3);
  expect(ended).toEqual([200, 200, 200, 200]);
});
