import { createServer as createHttpServer, type ServerResponse } from "node:http";
import { createServer as createHttp2Server, type ServerHttp2Stream } from "node:http2";
import type { Server } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import type { PreparedRequests } from "../requests/prepared-requests.ts";
import { type Channels, channelsOfWorker, connectionLimit, withChannelsOf } from "./channels.ts";
import type { Connection } from "./connection.ts";
import { connectionOpener } from "./sender.ts";
import { listen, requestsTo } from "./test-requests.ts";

/** Server that counts its connections and responds when `answer` is called. */
interface WaitingServer {
  readonly url: string;
  readonly transport: PreparedRequests["transport"];
  /** Connections so far. */
  readonly connections: () => number;
  readonly waiting: () => number;
  /** Answers all waiting requests. */
  readonly answer: () => void;
}

async function waitingServer(transport: "http" | "grpc"): Promise<WaitingServer> {
  let connections = 0;
  let answers: (() => void)[] = [];
  const hold = (answer: () => void) => answers.push(answer);
  const server =
    transport === "http"
      ? createHttpServer((_request, response: ServerResponse) => hold(() => response.end("ok")))
      : createHttp2Server().on("stream", (stream: ServerHttp2Stream) => {
          stream.on("error", () => {});
          stream.on("close", () => {
            if (stream.rstCode !== 0) answers = answers.filter((answer) => answer !== respond);
          });
          const respond = () => {
            stream.respond({ ":status": 200 }, { waitForTrailers: true });
            stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
            stream.end(Buffer.alloc(5));
          };
          hold(respond);
        });
  server.on("connection", () => {
    connections += 1;
  });
  const port = await listen(server as Server);
  onTestFinished(() => void server.close());
  return {
    url: transport === "http" ? `http://127.0.0.1:${port}` : `127.0.0.1:${port}`,
    transport,
    connections: () => connections,
    waiting: () => answers.length,
    answer: () => {
      for (const answer of answers.splice(0)) answer();
    },
  };
}

/** Clients of a server and the codes of their ended requests. */
function clientsOf({ url, transport }: WaitingServer, count: number, channels?: Channels) {
  const codes: string[] = [];
  const open = connectionOpener(requestsTo(url, { transport }), channels);
  const clients: Connection[] = Array.from({ length: count }, () =>
    open({ onAnswer: (code) => codes.push(code), onFailure: (code) => codes.push(code) }),
  );
  onTestFinished(() => {
    for (const client of clients) client.close();
  });
  return { clients, codes };
}

/** Sends two requests from each of four clients and returns the number of connections. */
async function connectionsOf(transport: "http" | "grpc", channels?: Channels): Promise<number> {
  const server = await waitingServer(transport);
  const { clients, codes } = clientsOf(server, 4, channels);
  for (const round of [1, 2]) {
    for (const client of clients) client.send(0);
    const ended = 4 * round;
    // a pool sends the rest once a connection is free
    while (codes.length < ended) {
      server.answer();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  expect(codes).toEqual(Array(8).fill(""));
  return server.connections();
}

test("each client keeps its own connection by default", async () => {
  expect(await connectionsOf("http")).toBe(4);
  expect(await connectionsOf("grpc")).toBe(4);
});

test("clients that share a gRPC channel use one connection at the same time", async () => {
  expect(await connectionsOf("grpc", "shared")).toBe(1);
  const server = await waitingServer("grpc");
  const { clients } = clientsOf(server, 4, "shared");
  for (const client of clients) client.send(0);
  await expect.poll(server.waiting).toBe(4);
});

test("a number of channels is the number of connections", async () => {
  expect(await connectionsOf("grpc", 2)).toBe(2);
  expect(await connectionsOf("http", 2)).toBe(2);
});

test("a pool sends at most one request at a time on each HTTP connection", async () => {
  const server = await waitingServer("http");
  const { clients, codes } = clientsOf(server, 3, 2);
  for (const client of clients) client.send(0);
  await expect.poll(server.waiting).toBe(2);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(server.waiting()).toBe(2);
  server.answer();
  await expect.poll(server.waiting).toBe(1);
  server.answer();
  await expect.poll(() => codes).toEqual(["", "", ""]);
});

test("a new connection for each request is closed after its response", async () => {
  expect(await connectionsOf("http", "new")).toBe(8);
  expect(await connectionsOf("grpc", "new")).toBe(8);
});

test("a request that is abandoned on a shared channel leaves the others", async () => {
  const server = await waitingServer("grpc");
  const { clients, codes } = clientsOf(server, 3, "shared");
  for (const client of clients) client.send(0);
  await expect.poll(server.waiting).toBe(3);
  clients[0]!.abandon("late");
  expect(codes).toEqual(["late"]);
  await expect.poll(server.waiting).toBe(2);
  server.answer();
  await expect.poll(() => codes).toEqual(["late", "", ""]);
  expect(server.connections()).toBe(1);
});

test("a request that is abandoned while it waits for a connection of the pool is not sent", async () => {
  const server = await waitingServer("http");
  const { clients, codes } = clientsOf(server, 2, 1);
  clients[0]!.send(0);
  await expect.poll(server.waiting).toBe(1);
  clients[1]!.send(0);
  clients[1]!.abandon("late");
  server.answer();
  await expect.poll(() => codes).toEqual(["late", ""]);
  clients[0]!.send(0);
  await expect.poll(server.waiting).toBe(1);
  server.answer();
  await expect.poll(() => codes).toEqual(["late", "", ""]);
  expect(server.waiting()).toBe(0);
});

test("workers divide the connections, and a shared channel allows one worker", () => {
  const load = { kind: "closed loop", concurrency: 16 } as const;
  expect(connectionLimit(load)).toBeUndefined();
  expect(connectionLimit({ ...load, channels: "new" })).toBeUndefined();
  expect(connectionLimit({ ...load, channels: "shared" })).toBe(1);
  expect(connectionLimit({ ...load, channels: 3 })).toBe(3);
  expect([0, 1].map((index) => channelsOfWorker({ ...load, channels: 3 }, index, 2))).toEqual([
    2, 1,
  ]);
});

test("clients that share an HTTP client use its keep-alive pool", () => {
  const load = { kind: "closed loop", concurrency: 16, channels: "shared" } as const;
  expect(withChannelsOf("http", load)).toEqual({ kind: "closed loop", concurrency: 16 });
  expect(withChannelsOf("grpc", load)).toEqual(load);
});
