import { once } from "node:events";
import {
  createServer,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from "node:http2";
import type { AddressInfo } from "node:net";

/** Path of the calls of tests. */
export const path = "/inference.GRPCInferenceService/ModelInfer";

export interface TestHttp2Server {
  readonly port: number;
  /** All connections so far. */
  readonly sessions: readonly ServerHttp2Session[];
  stop(): void;
}

/** Starts an HTTP/2 server that handles each stream as the test specifies. */
export async function startHttp2Server(
  handle: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => unknown,
  settings: ServerOptions["settings"] = {},
): Promise<TestHttp2Server> {
  const sessions: ServerHttp2Session[] = [];
  const server = createServer({ settings });
  server.on("session", (session) => {
    session.on("error", () => {});
    sessions.push(session);
  });
  server.on("stream", (stream, headers) => {
    stream.on("error", () => {});
    handle(stream, headers);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    sessions,
    stop() {
      for (const session of sessions) session.destroy();
      server.close();
    },
  };
}

/** Message of a request, without its prefix, once all of it has arrived. @throws {Error} if the prefix is wrong */
export async function messageOf(stream: ServerHttp2Stream): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (body[0] !== 0 || body.readUInt32BE(1) !== body.length - 5) throw new Error("invalid prefix");
  return body.subarray(5);
}

/** Responds with one message and the status OK. */
export function respond(stream: ServerHttp2Stream, message: string | Buffer): void {
  if (stream.destroyed) return;
  const bytes = Buffer.from(message);
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(bytes.length, 1);
  stream.respond({ ":status": 200 }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.end(Buffer.concat([prefix, bytes]));
}
