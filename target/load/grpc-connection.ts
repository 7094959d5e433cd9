import { status, statusName } from "../../client/triton/grpc-status.ts";
import { type CallError, UnaryChannel } from "../../client/triton/unary-channel.ts";
import type { PreparedRequest, PreparedRequests } from "../requests/prepared-requests.ts";
import type { Channels } from "./channels.ts";
import type { Connection, ConnectionEvents, OpenConnection } from "./connection.ts";

/** gRPC over HTTP/2 with prepared messages. Response bytes are counted, not decoded. */
export function grpcConnections(prepared: PreparedRequests, channels?: Channels): OpenConnection {
  const { url, headers } = prepared;
  const openChannel = () => new UnaryChannel({ target: url, metadata: headers });
  const isShared = channels === "shared" || typeof channels === "number";
  if (!isShared) {
    const use = channels === "new" ? "once" : "own";
    return (events) => new GrpcConnection(openChannel(), use, prepared, events);
  }
  const shared = Array.from({ length: channels === "shared" ? 1 : channels }, openChannel);
  let opened = 0;
  return (events) =>
    new GrpcConnection(shared[opened++ % shared.length]!, "shared", prepared, events);
}

/** Use of a gRPC channel: `own`: one client; `once`: one call; `shared`: several clients. */
type ChannelUse = "own" | "once" | "shared";

class GrpcConnection implements Connection {
  #call: AbortController | undefined;

  constructor(
    private readonly channel: UnaryChannel,
    private readonly use: ChannelUse,
    private readonly prepared: PreparedRequests,
    private readonly events: ConnectionEvents,
  ) {}

  send(request: number): void {
    void this.#send(this.prepared.requests[request]!);
  }

  async #send({ headers: metadata, body }: PreparedRequest): Promise<void> {
    const call = new AbortController();
    this.#call = call;
    const ended = await this.channel
      .call(this.prepared.path, [body], { metadata, signal: call.signal })
      .catch((error: CallError) => error);
    if (call !== this.#call) return;
    this.#call = undefined;
    if (this.use === "once") this.channel.retire();
    if (!(ended instanceof Error)) this.events.onAnswer("", ended.length);
    else if (ended.source === "connection") this.events.onFailure(connectionCode(ended));
    else this.events.onAnswer(responseCode(ended), 0);
  }

  abandon(code: string): void {
    const call = this.#call;
    this.#call = undefined;
    // the calls of other clients continue
    if (this.use === "shared") call?.abort();
    else this.channel.disconnect();
    if (call !== undefined) this.events.onFailure(code);
  }

  close(): void {
    this.#call = undefined;
    this.channel.disconnect();
  }
}

function responseCode({ code, details, source }: CallError): string {
  if (source === "http") return details.replace("HTTP status ", "");
  return code === status.DATA_LOSS && source === "response"
    ? "response truncated"
    : statusName(code);
}

/** Code of the error that ended the connection or the stream. */
function connectionCode({ cause }: CallError): string {
  if (!(cause instanceof Error)) return "UND_ERR_SOCKET";
  return "code" in cause && typeof cause.code === "string" ? cause.code : cause.message;
}
