import { once } from "node:events";
import {
  type ClientHttp2Session,
  connect,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from "node:http2";
import { type AddressInfo, createServer as createTcpServer, type Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, expect, test, vi } from "vitest";
import { status } from "./grpc-status.ts";
import type { ConnectionTls } from "./http2-connection.ts";
import { startFreezingProxy } from "./test-freezing-proxy.ts";
import { messageOf, path, respond, startHttp2Server } from "./test-http2-server.ts";
import { UnaryChannel } from "./unary-channel.ts";

/** Connections and streams that fail. A connection that is not checked fails no call before its deadline, which these calls do not have. */

/** Maximum time of a recovery in milliseconds. */
const recoveryMs = 10_000;

// the tests run at the same time
const cleanUps: (() => unknown)[] = [];
afterAll(() => {
  for (const cleanUp of cleanUps.reverse()) cleanUp();
});

async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

/** HTTP/2 server that handles each received message. */
async function serverOf(
  handle: (stream: ServerHttp2Stream, text: string, session: ServerHttp2Session) => void,
  settings: ServerOptions["settings"] = {},
) {
  const server = await startHttp2Server(async (stream) => {
    const message = await messageOf(stream).catch(() => undefined);
    if (message !== undefined) {
      handle(stream, message.toString(), stream.session as ServerHttp2Session);
    }
  }, settings);
  cleanUps.push(server.stop);
  return server;
}

function channelTo(port: number, tls?: ConnectionTls) {
  const address = `127.0.0.1:${port}`;
  const channel = new UnaryChannel({ target: "triton:8001", address, metadata: {}, tls });
  cleanUps.push(() => channel.disconnect());
  const call = async (text: string, options = {}) =>
    (await channel.call(path, [Buffer.from(text)], options)).toString();
  return { channel, call };
}

async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  const late = sleep(ms, undefined, { ref: false }).then(() => {
    throw new Error(`not settled within ${ms} ms`);
  });
  return await Promise.race([promise, late]);
}

test.concurrent("a connection that the network has dropped silently is replaced", async () => {
  const { port } = await serverOf((stream, text) => respond(stream, text));
  const proxy = await startFreezingProxy(port);
  cleanUps.push(() => proxy.stop());
  const { call } = channelTo(proxy.port);
  expect(await call("a")).toBe("a");
  proxy.freeze();
  await expect(within(recoveryMs, call("b"))).rejects.toMatchObject({
    code: status.UNAVAILABLE,
    details: "connection closed: no response to a ping within 5000 ms",
  });
  expect(await call("c")).toBe("c");
  expect(proxy.connections).toBe(2);
});

test.concurrent("a server that is slow but answers pings is not disconnected, and receives at most three", async () => {
  let pings = 0;
  const { port, sessions } = await serverOf((stream, text) => {
    void vi
      .waitFor(() => expect(pings).toBe(3), { timeout: 60_000 })
      .finally(async () => {
        await sleep(5_000);
        respond(stream, text);
      });
  });
  const { call } = channelTo(port);
  const slow = call("slow");
  await vi.waitFor(() => expect(sessions).toHaveLength(1));
  sessions[0]!.on("ping", () => {
    pings += 1;
  });
  expect(await slow).toBe("slow");
  expect(pings).toBe(3);
  expect(sessions).toHaveLength(1);
}, 90_000);

/** Port of a server that accepts connections and sends nothing. */
async function silentPort(): Promise<number> {
  const server = createTcpServer((socket) => {
    socket.on("error", () => {});
    cleanUps.push(() => socket.destroy());
  });
  cleanUps.push(() => server.close());
  return await listen(server);
}

test.concurrent("a server that accepts a connection and stays silent fails the call", async () => {
  const { call } = channelTo(await silentPort());
  await expect(within(recoveryMs, call("a"))).rejects.toMatchObject({ code: status.UNAVAILABLE });
});

test.concurrent("a connection that is not established in time fails the call, and a deadline ends it earlier", async () => {
  const port = await silentPort();
  const { call } = channelTo(port, { ca: Buffer.alloc(0), serverName: "triton" });
  const first = expect(within(recoveryMs, call("a"))).rejects.toMatchObject({
    details: "connection closed: not connected within 5000 ms",
  });
  const signal = AbortSignal.timeout(50);
  await expect(within(1_000, call("a", { signal }))).rejects.toMatchObject({
    details: "cancelled",
  });
  await first;
});

test.concurrent("a call ends with its deadline while the server accepts no more streams, and the next one uses another connection", async () => {
  const { port, sessions } = await serverOf(
    (stream, text) => text === "held" || respond(stream, text),
    { maxConcurrentStreams: 1 },
  );
  const { call } = channelTo(port);
  expect(await call("first")).toBe("first");
  void call("held").catch(() => {});
  const queued = call("queued", { signal: AbortSignal.timeout(200) });
  await expect(within(1_000, queued)).rejects.toMatchObject({ code: status.UNAVAILABLE });
  await sleep(3_000);
  expect(await within(1_000, call("next"))).toBe("next");
  expect(sessions).toHaveLength(2);
});

test.concurrent("calls beyond the server's limit of concurrent streams are queued", async () => {
  const { port } = await serverOf((stream, text) => respond(stream, text), {
    maxConcurrentStreams: 2,
  });
  const { call } = channelTo(port);
  const texts = Array.from({ length: 50 }, (_, at) => String(at));
  expect(await Promise.all(texts.map((text) => call(text)))).toEqual(texts);
});

test.concurrent("after GOAWAY, outstanding calls complete and the next call opens a connection", async () => {
  const held: ServerHttp2Stream[] = [];
  const { port, sessions } = await serverOf((stream, text, session) => {
    if (text !== "held") respond(stream, text);
    else {
      held.push(stream);
      session.goaway();
    }
  });
  const { call } = channelTo(port);
  const first = call("held");
  await vi.waitFor(() => expect(held).toHaveLength(1));
  await vi.waitFor(async () => {
    await call("second");
    expect(sessions).toHaveLength(2);
  });
  respond(held[0]!, "first");
  expect(await first).toBe("first");
});

test.concurrent("calls that a GOAWAY excludes are repeated on another connection", async () => {
  let received = 0;
  const { port, sessions } = await serverOf((stream, text, session) => {
    received += 1;
    if (received === 2) session.goaway(0, 1);
    else respond(stream, text);
  });
  const { call } = channelTo(port);
  expect(await call("a")).toBe("a");
  expect(await call("b")).toBe("b");
  expect(sessions).toHaveLength(2);
});

test.concurrent.each([
  ["INTERNAL_ERROR", 2],
  ["CANCEL", 8],
  ["ENHANCE_YOUR_CALM", 11],
])("RST_STREAM with %s fails its call only", async (_, code) => {
  const { port, sessions } = await serverOf((stream, text) => {
    if (text === "reset") stream.close(code);
    else setTimeout(() => respond(stream, text), 50);
  });
  const { call } = channelTo(port);
  const other = call("other");
  await expect(call("reset")).rejects.toMatchObject({ code: status.UNAVAILABLE });
  expect(await other).toBe("other");
  expect(sessions).toHaveLength(1);
});

test.concurrent("a response that is longer than allowed is not received", async () => {
  const { port } = await serverOf((stream) => respond(stream, "x".repeat(1_000_000)));
  const { call } = channelTo(port);
  await expect(call("a", { maxResponseBytes: 1_000 })).rejects.toMatchObject({
    code: status.DATA_LOSS,
    details: "the response has more than 1000 bytes",
  });
  expect(await call("a", { maxResponseBytes: 1_000_000 })).toHaveLength(1_000_000);
});

test("a connection without further stream ids is replaced", async () => {
  const { port, sessions } = await serverOf((stream, text) => respond(stream, text));
  const probe = connect(`http://127.0.0.1:${port}`);
  await vi.waitFor(() => expect(sessions).toHaveLength(1));
  type Session = ClientHttp2Session & { setNextStreamID(id: number): void };
  const session = Object.getPrototypeOf(probe) as Session;
  probe.destroy();
  const { request } = session;
  const requests = vi.spyOn(session, "request");
  requests.mockImplementationOnce(function (this: Session, headers) {
    this.once("connect", () => this.setNextStreamID(2 ** 31 - 1));
    return request.call(this, headers);
  });
  cleanUps.push(() => requests.mockRestore());
  const { call } = channelTo(port);
  expect([await call("a"), await call("b"), await call("c")]).toEqual(["a", "b", "c"]);
  expect(sessions).toHaveLength(3);
});
