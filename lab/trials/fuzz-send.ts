import { Agent, request } from "node:http";
import { connect } from "node:net";
import { Client, credentials, type ServiceError, status } from "@grpc/grpc-js";
import { embedErrorResponse, timeoutParameter } from "../../contract/embed-api.ts";
import { jsonOf } from "../../target/requests/http-client.ts";
import type { FuzzInput, FuzzTarget, GrpcInput, HttpInput, SocketInput } from "./fuzz-input.ts";

/** Sends inputs to servers on 127.0.0.1. */
export interface FuzzSender {
  /** Error in the response, in one line; `undefined` without an error. Never rejects. */
  send(input: FuzzInput): Promise<string | undefined>;
  close(): void;
}

/** Time without a response after which the server counts as hung. */
const maxResponseMs = 20_000;
/** Time that a connection stays open with the ending `wait`. */
const waitMs = 30;

/** Accepted server errors. Triton returns 501 for unsupported operations. */
const acceptedServerErrors: Readonly<Record<FuzzTarget, readonly number[]>> = {
  embed: [503],
  "triton-http": [501, 503],
  "triton-metrics": [503],
  "triton-grpc": [],
};

/** Message of a rejected load, which has an internal error status in Triton. */
const loadRejection = /failed to load '|load failed for model '/;

const acceptedGrpcCodes: readonly status[] = [
  status.OK,
  status.CANCELLED,
  status.INVALID_ARGUMENT,
  status.NOT_FOUND,
  status.RESOURCE_EXHAUSTED,
  status.UNIMPLEMENTED,
  status.UNAVAILABLE,
];

/** @param onResponse - Receives target and status of each response, such as `embed 200`; of a raw connection, `embed connection`. */
export function openFuzzSender(
  ports: Readonly<Record<FuzzTarget, number>>,
  onResponse: (response: string) => void,
): FuzzSender {
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  const grpc = new Client(`127.0.0.1:${ports["triton-grpc"]}`, credentials.createInsecure(), {
    "grpc.max_receive_message_length": -1,
    "grpc.max_send_message_length": -1,
  });
  return {
    async send(input) {
      switch (input.kind) {
        case "http":
          return sendHttp(input, ports[input.target], agent, onResponse);
        case "socket":
          onResponse(`${input.target} connection`);
          return sendBytes(input, ports[input.target]);
        case "grpc":
          return sendGrpc(input, grpc, onResponse);
      }
    },
    close() {
      agent.destroy();
      grpc.close();
    },
  };
}

async function sendHttp(
  input: HttpInput,
  port: number,
  agent: Agent,
  onResponse: (response: string) => void,
): Promise<string | undefined> {
  const first = await requestHttp(input, port, agent);
  // a close of an idle connection is not a server error
  const response = first === "ECONNRESET" ? await requestHttp(input, port, undefined) : first;
  if (typeof response === "string") return response;
  const { status: code, text } = response;
  onResponse(`${input.target} ${code}`);
  const mayTimeOut =
    code === 504 && input.target === "embed" && input.path.includes(`${timeoutParameter}=`);
  const loadRejected = input.path.endsWith("/load") && loadRejection.test(text);
  if (
    code >= 500 &&
    !mayTimeOut &&
    !loadRejected &&
    !acceptedServerErrors[input.target].includes(code)
  ) {
    return `status ${code}: ${text.slice(0, 300)}`;
  }
  if (input.target === "embed" && code >= 400 && input.method !== "HEAD") {
    const ready = input.path.startsWith("/readyz");
    if (!ready && !embedErrorResponse.safeParse(jsonOf({ body: Buffer.from(text) })).success) {
      return `status ${code} without an error body: ${text.slice(0, 300)}`;
    }
  }
  return undefined;
}

function requestHttp(
  { method, path, headers, body }: HttpInput,
  port: number,
  agent: Agent | undefined,
): Promise<{ readonly status: number; readonly text: string } | string> {
  return new Promise((resolve) => {
    const all = { ...headers, "content-length": String(body.length) };
    const call = request(
      { host: "127.0.0.1", port, method, path, headers: all, agent: agent ?? false },
      (response) => {
        const pieces: Buffer[] = [];
        response.on("data", (piece: Buffer) => pieces.push(piece));
        response.once("end", () =>
          resolve({ status: response.statusCode ?? 0, text: Buffer.concat(pieces).toString() }),
        );
        response.once("error", (error) => resolve(`incomplete response: ${error.message}`));
      },
    );
    call.setTimeout(maxResponseMs, () => {
      resolve(`no response in ${maxResponseMs / 1000} s`);
      call.destroy();
    });
    call.once("error", (error: NodeJS.ErrnoException) =>
      resolve(error.code === "ECONNRESET" ? "ECONNRESET" : `no response: ${error.message}`),
    );
    call.end(body);
  });
}

function sendBytes(
  { target, pieces, ending }: SocketInput,
  port: number,
): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    let received = "";
    const hang = setTimeout(() => {
      resolve(`the connection was not closed in ${maxResponseMs / 1000} s`);
      socket.destroy();
    }, maxResponseMs);
    socket.on("data", (data) => {
      if (received.length < 100_000) received += data.toString("latin1");
    });
    socket.on("error", () => {});
    socket.once("close", () => {
      clearTimeout(hang);
      const bad = [...received.matchAll(/^HTTP\/1\.1 (5\d\d) .*$/gm)].find(
        ([, code]) => code !== "505" && !acceptedServerErrors[target].includes(Number(code)),
      );
      resolve(bad === undefined ? undefined : `${bad[0].trim()}: ${received.slice(0, 300)}`);
    });
    socket.once("connect", () => {
      for (const piece of pieces) socket.write(piece);
      if (ending === "end") socket.end();
      else if (ending === "cut") socket.destroySoon();
      else setTimeout(() => socket.destroy(), waitMs);
    });
  });
}

function sendGrpc(
  { path, message, deadlineMs }: GrpcInput,
  client: Client,
  onResponse: (response: string) => void,
): Promise<string | undefined> {
  const unchanged = (bytes: Buffer) => bytes;
  const deadline = Date.now() + (deadlineMs ?? maxResponseMs);
  return new Promise((resolve) => {
    const done = (error: ServiceError | null) => {
      const code = error?.code ?? status.OK;
      onResponse(`triton-grpc ${status[code]}`);
      const deadlinePassed = code === status.DEADLINE_EXCEEDED && deadlineMs !== undefined;
      // gRPC's own error for an invalid message
      const undecodable =
        code === status.INTERNAL && /deserializ|decod/i.test(error?.details ?? "");
      const loadRejected = code === status.INTERNAL && loadRejection.test(error?.details ?? "");
      if (deadlinePassed || undecodable || loadRejected || acceptedGrpcCodes.includes(code))
        resolve(undefined);
      else resolve(`gRPC status ${status[code]}: ${error?.details.slice(0, 300)}`);
    };
    client.makeUnaryRequest(path, unchanged, unchanged, Buffer.from(message), { deadline }, done);
  });
}
