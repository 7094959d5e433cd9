import { createServer as createHttp2Server, type ServerHttp2Stream } from "node:http2";
import { createServer, type Server, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import type { PreparedRequests } from "../requests/prepared-requests.ts";
import { codeText } from "./samples.ts";
import { connectionOpener } from "./sender.ts";
import { listen, requestsTo } from "./test-requests.ts";

interface Result {
  /** Empty if the request succeeded. */
  readonly code: string;
  readonly bytes: number;
}

/** Sends requests sequentially on one connection. */
async function sendInTurn(
  url: string,
  transport: PreparedRequests["transport"],
  count: number,
): Promise<readonly Result[]> {
  const results: Result[] = [];
  let end: (result: Result) => void = () => {};
  const connection = connectionOpener(requestsTo(url, { transport }))({
    onAnswer: (code, bytes) => end({ code: code && codeText(code), bytes }),
    onFailure: (code) => end({ code: codeText(code), bytes: 0 }),
  });
  while (results.length < count) {
    const ended = new Promise<Result>((resolve) => {
      end = resolve;
    });
    connection.send(0);
    results.push(await ended);
  }
  connection.close();
  return results;
}

async function httpServer(onConnection: (socket: Socket) => void): Promise<string> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    onConnection(socket);
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${await listen(server)}`;
}

async function grpcServer(onStream: (stream: ServerHttp2Stream) => void): Promise<string> {
  const server = createHttp2Server().on("stream", onStream);
  onTestFinished(() => void server.close());
  return `127.0.0.1:${await listen(server as Server)}`;
}

const emptyAnswer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const cut = { code: "connection closed before the response", bytes: 0 };

test("a connection closed by the server after a response is reopened", async () => {
  const body = "body without a length";
  const url = await httpServer((socket) => {
    socket.once("data", () => socket.end(`HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n${body}`));
  });
  expect(await sendInTurn(url, "http", 3)).toEqual(Array(3).fill({ code: "", bytes: body.length }));
});

test("a request on a connection that the server is closing is retried on a new one", async () => {
  let received = 0;
  const url = await httpServer((socket) => {
    let isFirst = true;
    socket.on("data", () => {
      received += 1;
      // closes at the second request, as if the close and the request crossed
      if (isFirst) socket.write(emptyAnswer);
      else socket.destroy();
      isFirst = false;
    });
  });
  const codes = (await sendInTurn(url, "http", 20)).map(({ code }) => code);
  // on a busy machine the close may arrive late; without the retry every other request fails
  expect(codes.filter((code) => code === "").length).toBeGreaterThan(15);
  expect(received).toBeGreaterThan(20);
});

test("a request that the server held for a while before closing is not retried", async () => {
  let received = 0;
  const url = await httpServer((socket) => {
    socket.on("data", () => {
      received += 1;
      if (received === 3) setTimeout(() => socket.destroy(), 100);
      else socket.write(emptyAnswer);
    });
  });
  const good = { code: "", bytes: 0 };
  expect(await sendInTurn(url, "http", 4)).toEqual([good, good, cut, good]);
  expect(received).toBe(4);
});

test("a connection closed within a response is a failure", async () => {
  const url = await httpServer((socket) => {
    socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"));
  });
  expect(await sendInTurn(url, "http", 2)).toEqual([cut, cut]);
});

const chunks =
  "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";

test("chunk headers are not counted as response bytes", async () => {
  const url = await httpServer((socket) => {
    // split within the response header
    socket.on("data", () => {
      socket.write(chunks.slice(0, 7));
      setTimeout(() => socket.write(chunks.slice(7)), 10);
    });
  });
  expect(await sendInTurn(url, "http", 2)).toEqual(Array(2).fill({ code: "", bytes: 5 }));
});

test.each([
  ["what is not HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n"],
  ["a chunk that is longer than its size", chunks.replace("abc", "abcd")],
  ["a chunk whose size is no number", chunks.replace("3;x=1", "x")],
])("%s is a failure", async (_what, text) => {
  const url = await httpServer((socket) => {
    socket.on("data", () => socket.write(text));
  });
  expect(await sendInTurn(url, "http", 2)).toMatchObject(Array(2).fill({ code: "not HTTP" }));
});

test("a gRPC error is reported by its status name", async () => {
  const url = await grpcServer((stream) => {
    stream.respond({ ":status": 200, "grpc-status": "14" }, { endStream: true });
  });
  expect(await sendInTurn(url, "grpc", 2)).toMatchObject(Array(2).fill({ code: "UNAVAILABLE" }));
});

test.each([
  ["less than its message", Buffer.from([0, 0, 0, 0, 9, 1, 2, 3])],
  ["less than a message's frame", Buffer.from([0, 0])],
  ["no message", Buffer.alloc(0)],
])("a gRPC response with %s is an error, though its status is good", async (_what, body) => {
  const url = await grpcServer((stream) => {
    stream.respond({ ":status": 200 }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.end(body);
  });
  expect(await sendInTurn(url, "grpc", 1)).toMatchObject([{ code: "response truncated" }]);
});
