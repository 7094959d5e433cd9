/** Server with a fault for tests, in place of the server's own file. `TEST_FAULT` in the container's environment selects it. */
import { subscribe } from "node:diagnostics_channel";
import { existsSync, writeFileSync } from "node:fs";
import { type IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

const fault = process.env.TEST_FAULT;

if (fault === "loses requests") process.once("SIGTERM", () => process.exit(0));
if (fault === "does not stop") {
  setInterval(() => {}, 1_000);
  process.exit = (() => {}) as unknown as typeof process.exit;
}
if (fault === "hides errors") {
  const { writeHead } = ServerResponse.prototype;
  ServerResponse.prototype.writeHead = function (
    this: ServerResponse,
    status: number,
    ...rest: []
  ) {
    return writeHead.call(this, status === 422 ? 500 : status, ...rest);
  } as typeof writeHead;
}
if (fault === "exits on a request") {
  subscribe("http.server.request.start", (message) => {
    const { request } = message as { readonly request: IncomingMessage };
    if (request.method === "POST") process.exit(9);
  });
}
if (fault === "counts no images") {
  const { end } = ServerResponse.prototype;
  ServerResponse.prototype.end = function (
    this: ServerResponse,
    body: unknown,
    encoding: BufferEncoding,
    done?: () => void,
  ) {
    const zeros = (_all: string, name: string, count: string) => name + "0".repeat(count.length);
    const changed =
      typeof body === "string"
        ? body.replace(/^(clipstack_embed_batch_size_sum(?:\{[^}]*\})? )(\d+)$/m, zeros)
        : body;
    return end.call(this, changed, encoding, done);
  } as typeof end;
}
if (fault === "cuts a connection") cutOnStop();
if (fault === "replicas fail together") {
  // a stopping replica writes a file, which makes the others fail
  const file = process.env.TEST_FAULT_FILE ?? "";
  process.once("SIGTERM", () => writeFileSync(file, ""));
  const { writeHead } = ServerResponse.prototype;
  ServerResponse.prototype.writeHead = function (
    this: ServerResponse,
    status: number,
    ...rest: []
  ) {
    return writeHead.call(this, existsSync(file) ? 500 : status, ...rest);
  } as typeof writeHead;
}

/** Destroys one connection with a request in flight when the server stops. `TEST_FAULT_PROTOCOL` is its protocol. */
function cutOnStop(): void {
  const http = new Set<Socket>();
  const posts = new Map<IncomingMessage, Socket>();
  const all = new Set<Socket>();
  let cutNext = false;
  subscribe("net.server.socket", (message) => {
    const { socket } = message as { readonly socket: Socket };
    all.add(socket);
    socket.once("close", () => all.delete(socket));
  });
  subscribe("http.server.request.start", (message) => {
    const { request } = message as { readonly request: IncomingMessage };
    http.add(request.socket);
    if (request.method !== "POST") return;
    if (cutNext) request.socket.destroy();
    cutNext = false;
    posts.set(request, request.socket);
  });
  subscribe("http.server.response.finish", (message) => {
    posts.delete((message as { readonly request: IncomingMessage }).request);
  });
  process.once("SIGTERM", () => {
    if (process.env.TEST_FAULT_PROTOCOL === "grpc") {
      for (const socket of all) if (!http.has(socket)) socket.destroy();
      return;
    }
    // skips requests that the client has aborted
    const socket = [...posts.values()].find(({ destroyed }) => !destroyed);
    cutNext = socket === undefined;
    socket?.destroy();
  });
}

await import("../inference-image/main.ts");
