import { createServer, type IncomingMessage } from "node:http";
import { connect, createServer as createTcpServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { openHttpClient } from "../../target/requests/http-client.ts";
import { type Link, startLinkProxy } from "./link-proxy.ts";

const closers: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Responds to each request with `answerBytes`, or echoes it. */
async function server(answerBytes?: number): Promise<number> {
  const http = createServer(async (request, response) => {
    const body = await read(request);
    response.end(answerBytes === undefined ? body : Buffer.alloc(answerBytes));
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    http.closeAllConnections();
    return new Promise((resolve) => http.close(resolve));
  });
  const address = http.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

async function read(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

/** Client of a server behind a link, with an open connection. */
async function behind(link: Link, answerBytes?: number) {
  const port = await server(answerBytes);
  const proxy = await startLinkProxy({ host: "127.0.0.1", port }, link);
  closers.push(() => proxy.close());
  const http = openHttpClient(8);
  closers.push(() => http.close());
  const send = async (bytes: number) => {
    const startedAt = performance.now();
    const answer = await http.send(`http://127.0.0.1:${proxy.port}/`, {
      body: Buffer.alloc(bytes, 7),
    });
    return { ms: performance.now() - startedAt, answer };
  };
  await send(1);
  return { proxy, send };
}

/** Maximum excess over the computed time, because another process may use the core. */
const patienceMs = 2_000;

test("a request takes one round trip", async () => {
  const { send } = await behind({ roundTripMs: 120 });
  const { ms } = await send(10);
  expect(ms).toBeGreaterThanOrEqual(120);
  expect(ms).toBeLessThan(120 + patienceMs);
});

test("a request body takes its size divided by the bandwidth", async () => {
  const { send } = await behind({ bandwidthMbps: 8, roundTripMs: 0 }, 1);
  // 500 000 bytes at 10^6 bytes per second
  const { ms } = await send(500_000);
  expect(ms).toBeGreaterThanOrEqual(500);
  expect(ms).toBeLessThan(500 + patienceMs);
});

test("a response body takes its size divided by the bandwidth", async () => {
  const { send } = await behind({ bandwidthMbps: 8, roundTripMs: 20 }, 400_000);
  const { ms } = await send(1);
  expect(ms).toBeGreaterThanOrEqual(420);
  expect(ms).toBeLessThan(420 + patienceMs);
});

test("connections share the bandwidth", async () => {
  const { send } = await behind({ bandwidthMbps: 16, roundTripMs: 0 }, 1);
  const startedAt = performance.now();
  await Promise.all([send(250_000), send(250_000), send(250_000), send(250_000)]);
  // 10^6 bytes at 2 × 10^6 bytes per second
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(500);
});

test("a new connection takes one more round trip", async () => {
  const port = await server(1);
  const proxy = await startLinkProxy({ host: "127.0.0.1", port }, { roundTripMs: 100 });
  closers.push(() => proxy.close());
  const http = openHttpClient();
  closers.push(() => http.close());
  const startedAt = performance.now();
  await http.send(`http://127.0.0.1:${proxy.port}/`);
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(200);
});

test("bytes are forwarded unchanged", async () => {
  const { send, proxy } = await behind({ bandwidthMbps: 1_000, roundTripMs: 2 });
  const { answer } = await send(3_000_000);
  expect(answer.body.equals(Buffer.alloc(3_000_000, 7))).toBe(true);
  expect(proxy.bytes().up).toBeGreaterThan(3_000_000);
  expect(proxy.bytes().down).toBeGreaterThan(3_000_000);
});

test("a connection refused by the server is closed", async () => {
  const gone = await startLinkProxy({ host: "127.0.0.1", port: 1 }, { roundTripMs: 10 });
  closers.push(() => gone.close());
  const socket = connect(gone.port, "127.0.0.1");
  await new Promise((resolve) => socket.on("error", () => {}).once("close", resolve));
});

test("a connection that is being opened does not delay another", async () => {
  const { send, proxy } = await behind({ bandwidthMbps: 100, roundTripMs: 1_000 });
  const other = connect(proxy.port, "127.0.0.1");
  closers.push(() => other.destroy());
  await new Promise<void>((resolve) => other.write("POST / HTTP/1.1\r\n", () => resolve()));
  await sleep(50);
  const { ms } = await send(10);
  // otherwise one more round trip, less the 50 ms
  expect(ms).toBeLessThan(1_900);
});

test("a sender waits for a receiver that does not read, and nothing is lost", async () => {
  const warnings: string[] = [];
  const onWarning = ({ name }: Error) => warnings.push(name);
  process.on("warning", onWarning);
  closers.push(() => process.removeListener("warning", onWarning));
  const bytes = 64 * 1024 * 1024;
  let accept: (socket: Socket) => void = () => {};
  const accepted = new Promise<Socket>((resolve) => {
    accept = resolve;
  });
  const tcp = createTcpServer({ pauseOnConnect: true }, (socket) => accept(socket));
  await new Promise<void>((resolve) => tcp.listen(0, "127.0.0.1", resolve));
  closers.push(() => tcp.close());
  const address = tcp.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const proxy = await startLinkProxy({ host: "127.0.0.1", port }, { roundTripMs: 2 });
  closers.push(() => proxy.close());
  const sender = connect(proxy.port, "127.0.0.1");
  closers.push(() => sender.destroy());
  sender.end(Buffer.alloc(bytes, 7));
  const receiver = await accepted;
  await sleep(700);
  const held = proxy.bytes().up;
  // at most the size of the system's buffers
  expect(held).toBeGreaterThan(0);
  expect(held).toBeLessThan(bytes / 2);
  let got = 0;
  for await (const chunk of receiver) got += (chunk as Buffer).length;
  expect(got).toBe(bytes);
  expect(warnings).toEqual([]);
});

test("reports its own delay, which is less than that of a Node timer", async () => {
  const { send, proxy } = await behind({ roundTripMs: 20 });
  for (let i = 0; i < 10; i++) await send(10);
  expect(proxy.medianLatenessMs()).toBeGreaterThan(0);
  // generous, because another process may use the core
  expect(proxy.medianLatenessMs()).toBeLessThan(100);
});
