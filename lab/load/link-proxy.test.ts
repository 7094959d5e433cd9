import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { openHttpClient } from "../../target/requests/http-client.ts";
import { type Link, startLinkProxy } from "./link-proxy.ts";

const closers: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Client of a server behind a link, which responds to each request with `answerBytes`, or echoes it. */
async function behind(link: Link, answerBytes?: number) {
  const server = createServer(async (request, response) => {
    const body = await buffer(request);
    response.end(answerBytes === undefined ? body : Buffer.alloc(answerBytes));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  closers.push(() => server.close());
  const { port } = server.address() as AddressInfo;
  const proxy = await startLinkProxy({ host: "127.0.0.1", port }, link);
  closers.push(() => proxy.close());
  const client = openHttpClient(8);
  closers.push(() => client.close());
  return async (bytes: number) => {
    const startedAt = performance.now();
    const { body } = await client.send(`http://127.0.0.1:${proxy.port}/`, {
      body: Buffer.alloc(bytes, 7),
    });
    return { ms: performance.now() - startedAt, body };
  };
}

/** Maximum excess over the computed time, because another process may use the core. */
const patienceMs = 2_000;

test.each<[string, Link, number, number, number]>([
  ["one round trip", { roundTripMs: 120 }, 10, 10, 120],
  ["the size of its body by the bandwidth", { bandwidthMbps: 8, roundTripMs: 0 }, 500_000, 1, 500],
  [
    "the size of the response by the bandwidth",
    { bandwidthMbps: 8, roundTripMs: 20 },
    1,
    400_000,
    420,
  ],
])(
  "a request takes %s, and a new connection one more round trip",
  async (_, link, up, down, ms) => {
    const send = await behind(link, down);
    expect((await send(1)).ms).toBeGreaterThanOrEqual(2 * link.roundTripMs);
    const { ms: took } = await send(up);
    // timers may be early by their resolution
    expect(took).toBeGreaterThanOrEqual(ms - 2);
    expect(took).toBeLessThan(ms + patienceMs);
  },
);

test("connections share the bandwidth", async () => {
  const send = await behind({ bandwidthMbps: 16, roundTripMs: 0 }, 1);
  const startedAt = performance.now();
  await Promise.all([send(250_000), send(250_000), send(250_000), send(250_000)]);
  // 10^6 bytes at 2 × 10^6 bytes per second
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(498);
});

test("bytes are forwarded unchanged", async () => {
  const send = await behind({ bandwidthMbps: 1_000, roundTripMs: 2 });
  expect((await send(3_000_000)).body.equals(Buffer.alloc(3_000_000, 7))).toBe(true);
});

test("a connection refused by the server is closed", async () => {
  const gone = await startLinkProxy({ host: "127.0.0.1", port: 1 }, { roundTripMs: 10 });
  closers.push(() => gone.close());
  const socket = connect(gone.port, "127.0.0.1");
  await new Promise((resolve) => socket.on("error", () => {}).once("close", resolve));
});

test("a sender waits for a receiver that does not read, and nothing is lost", async () => {
  const bytes = 64 * 1024 * 1024;
  const tcp = createTcpServer({ pauseOnConnect: true }).listen(0, "127.0.0.1");
  closers.push(() => tcp.close());
  await once(tcp, "listening");
  const { port } = tcp.address() as AddressInfo;
  const proxy = await startLinkProxy({ host: "127.0.0.1", port }, { roundTripMs: 2 });
  closers.push(() => proxy.close());
  const sender = connect(proxy.port, "127.0.0.1");
  closers.push(() => sender.destroy());
  sender.end(Buffer.alloc(bytes, 7));
  const [receiver] = (await once(tcp, "connection")) as [Socket];
  await sleep(700);
  expect(sender.writableLength).toBeGreaterThan(0);
  let got = 0;
  for await (const chunk of receiver) got += (chunk as Buffer).length;
  expect(got).toBe(bytes);
});
