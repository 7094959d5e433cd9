import type { ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import { messageOf, path, respond, startHttp2Server } from "./test-http2-server.ts";
import { UnaryChannel } from "./unary-channel.ts";

/** Channel to an HTTP/2 server that handles each call as the test specifies. */
async function channelTo(handle: Parameters<typeof startHttp2Server>[0]) {
  const { port, sessions, stop } = await startHttp2Server(handle);
  onTestFinished(stop);
  const channel = new UnaryChannel({
    target: "triton:8001",
    address: `127.0.0.1:${port}`,
    metadata: { authorization: "Bearer key" },
  });
  onTestFinished(() => channel.close());
  return { channel, sessions };
}

const options = { timeoutMs: 1_234.5, signal: new AbortController().signal };

test("sends the parts as one message with target, metadata and deadline, and returns the response", async () => {
  let seen: readonly unknown[] = [];
  const { channel } = await channelTo(async (stream, headers) => {
    const names = [":authority", ":path", "authorization", "grpc-timeout", "te"];
    seen = [...names.map((name) => headers[name]), (await messageOf(stream)).toString("latin1")];
    respond(stream, "response");
  });
  const parts = ["ab", "", "cde"].map((text) => Buffer.from(text));
  expect((await channel.call(path, parts, options)).toString()).toBe("response");
  expect(seen).toEqual([...["triton:8001", path, "Bearer key", "1235m", "trailers"], "abcde"]);
});

test("fails with the status and the decoded message of the server", async () => {
  const { channel } = await channelTo((stream) => {
    stream.respond(
      { ":status": 200, "grpc-status": "5", "grpc-message": "unknown model: caf%C3%A9" },
      { endStream: true },
    );
  });
  await expect(channel.call(path, [Buffer.alloc(1)], options)).rejects.toMatchObject({
    code: status.NOT_FOUND,
    details: "unknown model: café",
  });
});

test.each<[string, (stream: ServerHttp2Stream) => void, object]>([
  [
    "an incomplete message",
    (stream) => {
      stream.respond({ ":status": 200 }, { waitForTrailers: true });
      stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
      stream.end(Buffer.from([0, 0, 0, 0, 9, 1]));
    },
    { code: status.DATA_LOSS },
  ],
  [
    "the response of a proxy",
    (stream) => stream.respond({ ":status": 502 }, { endStream: true }),
    { code: status.UNAVAILABLE, details: "HTTP status 502" },
  ],
  [
    "a closed connection",
    (stream) => stream.session?.destroy(),
    { code: status.UNAVAILABLE, details: expect.stringContaining("connection closed") },
  ],
])("fails on %s", async (_name, handle, error) => {
  const { channel } = await channelTo(handle);
  await expect(channel.call(path, [Buffer.alloc(1)], options)).rejects.toMatchObject(error);
});

test("opens a new connection after the server has closed the last one", async () => {
  let calls = 0;
  const { channel, sessions } = await channelTo((stream) => {
    calls += 1;
    if (calls === 1) stream.session?.destroy();
    else respond(stream, "second");
  });
  await expect(channel.call(path, [Buffer.alloc(1)], options)).rejects.toThrow();
  expect((await channel.call(path, [Buffer.alloc(1)], options)).toString()).toBe("second");
  expect(sessions).toHaveLength(2);
});

test("ends only the stream of a cancelled call whose request was sent", async () => {
  const cancelled = new AbortController();
  let ended = -1;
  const { channel, sessions } = await channelTo(async (stream) => {
    stream.on("close", () => {
      if (stream.rstCode !== 0) ended = stream.rstCode;
    });
    if ((await messageOf(stream)).includes("first")) cancelled.abort();
    else respond(stream, "second");
  });
  const first = channel.call(path, [Buffer.from("first")], {
    ...options,
    signal: cancelled.signal,
  });
  await expect(first).rejects.toMatchObject({ code: status.UNAVAILABLE });
  expect((await channel.call(path, [Buffer.from("second")], options)).toString()).toBe("second");
  expect(sessions).toHaveLength(1);
  expect(ended).toBe(8); // CANCEL
});

test("ends only the stream of a cancelled call whose request is still being sent", async () => {
  const cancelled = new AbortController();
  const { channel, sessions } = await channelTo(async (stream, headers) => {
    if (headers["grpc-timeout"] === "1m") {
      // the server never reads, so that flow control blocks the request
      stream.pause();
      cancelled.abort();
    } else {
      await messageOf(stream);
      respond(stream, "second");
    }
  });
  const message = [Buffer.alloc(4 * 1024 * 1024)];
  const blocked = channel.call(path, message, { timeoutMs: 1, signal: cancelled.signal });
  const other = channel.call(path, message, options);
  await expect(blocked).rejects.toMatchObject({ code: status.UNAVAILABLE });
  expect((await other).toString()).toBe("second");
  expect(sessions).toHaveLength(1);
});

test("receives a response while larger requests than Node's limit of 10 MB are queued", async () => {
  const [bytes, count] = [8 * 1024 * 1024, 4];
  const waiting: ServerHttp2Stream[] = [];
  const { channel } = await channelTo((stream) => {
    if (waiting.push(stream) === count) void answer(waiting.shift()!);
  });
  async function answer(stream: ServerHttp2Stream) {
    const { length } = await messageOf(stream);
    respond(stream, String(length));
  }
  const message = [Buffer.alloc(bytes)];
  const calls = Array.from({ length: count }, async () => {
    const response = await channel.call(path, message, options);
    // the next request is read once this response has arrived
    const next = waiting.shift();
    if (next !== undefined) void answer(next);
    return response.toString();
  });
  expect(await Promise.all(calls)).toEqual(Array(count).fill(String(bytes)));
});

test("repeats a call that the server refused, once", async () => {
  let calls = 0;
  const { channel } = await channelTo(async (stream, headers) => {
    calls += 1;
    if (headers[":path"] === "/always" || calls === 1)
      stream.close(7); // REFUSED_STREAM
    else respond(stream, await messageOf(stream));
  });
  const message = [Buffer.from("request")];
  expect((await channel.call(path, message, options)).toString()).toContain("request");
  expect(calls).toBe(2);
  await expect(channel.call("/always", message, options)).rejects.toMatchObject({
    code: status.UNAVAILABLE,
    details: "Stream refused by server",
  });
  expect(calls).toBe(4);
});

test("fails if the server cannot be reached, and after it is closed", async () => {
  const channel = new UnaryChannel({ target: "a:1", address: "127.0.0.1:1", metadata: {} });
  await expect(channel.call(path, [], options)).rejects.toMatchObject({
    code: status.UNAVAILABLE,
    details: expect.stringContaining("ECONNREFUSED"),
  });
  channel.close();
  await expect(channel.call(path, [], options)).rejects.toMatchObject({
    details: "The client has been closed",
  });
});
