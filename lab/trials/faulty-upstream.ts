import { once } from "node:events";
import {
  type ClientHttp2Session,
  connect,
  constants,
  createServer,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import { type FreezingProxy, startFreezingProxy } from "../../client/triton/test-freezing-proxy.ts";
import { methodOf } from "../../client/triton/wire-grpc.ts";

/** Faults of inferences; health checks succeed. */
export const faults = ["internal error", "zero vectors", "hang", "reset", "goaway"] as const;
export type Fault = (typeof faults)[number];

const grpcInternal = "13";
const inferPath = methodOf("ModelInfer").path;

/** Proxy in front of a Triton server. On demand it makes inferences fail and connections freeze. */
export class FaultyUpstream {
  fault: Fault | undefined;
  readonly #server = createServer({ settings: { initialWindowSize: 8 * 1024 * 1024 } });
  readonly #clients = new Set<ServerHttp2Session>();
  #triton: ClientHttp2Session | undefined;
  #network: FreezingProxy | undefined;

  /** @param target - gRPC port of the server; changes with its restart. */
  constructor(public target: number) {
    this.#server.on("session", (session) => {
      this.#clients.add(session);
      session.on("error", () => {});
      session.on("close", () => this.#clients.delete(session));
    });
    this.#server.on("stream", (stream, headers) => this.#forward(stream, headers));
  }

  /** @returns `host:port` for the gateway. */
  async start(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.#network = await startFreezingProxy((this.#server.address() as AddressInfo).port);
    return `127.0.0.1:${this.#network.port}`;
  }

  freeze(): void {
    this.#network?.freeze();
  }

  stop(): void {
    this.#network?.stop();
    this.#triton?.destroy();
    for (const session of this.#clients) session.destroy();
    this.#server.close();
  }

  #forward(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    stream.on("error", () => {});
    const fault = headers[":path"] === inferPath ? this.fault : undefined;
    if (fault === "hang") stream.resume();
    else if (fault === "reset") stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    else if (fault === "internal error") {
      stream.respond({ ":status": 200, "grpc-status": grpcInternal }, { endStream: true });
    } else {
      if (fault === "goaway") stream.session?.goaway();
      const call = this.#session().request(headers);
      call.on("error", () => {});
      let trailers: IncomingHttpHeaders = {};
      call.on("trailers", (received) => {
        trailers = received;
      });
      call.on("response", (head, flags) => {
        if (stream.destroyed) return;
        const endStream = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
        stream.respond(head, { waitForTrailers: !endStream, endStream });
      });
      stream.on("wantTrailers", () => stream.sendTrailers(trailers));
      call.on("data", (chunk: Buffer) => {
        // the vectors are the end of the message
        if (fault === "zero vectors") chunk.fill(0, Math.max(0, chunk.length - 2_048));
        if (!stream.destroyed) stream.write(chunk);
      });
      call.on("end", () => stream.end());
      call.on("close", () => call.rstCode !== 0 && stream.close(call.rstCode));
      stream.on("close", () => call.close(constants.NGHTTP2_CANCEL));
      stream.pipe(call);
    }
  }

  #session(): ClientHttp2Session {
    if (this.#triton === undefined || this.#triton.closed || this.#triton.destroyed) {
      const session = connect(`http://127.0.0.1:${this.target}`);
      this.#triton = session;
      session.on("error", () => {});
      // the server has stopped
      session.on("close", () => {
        for (const client of this.#clients) client.destroy();
      });
    }
    return this.#triton;
  }
}
