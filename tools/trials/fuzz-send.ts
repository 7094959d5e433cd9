import { Agent, request } from "node:http";
import { connect } from "node:net";
import { Client, credentials, type ServiceError, status } from "@grpc/grpc-js";
import { jsonOf } from "../../bench/run/http-client.ts";
import { embedErrorResponse, timeoutParameter } from "../../contract/embed-api.ts";
import type { FuzzInput, FuzzTarget, GrpcInput, HttpInput, SocketInput } from "./fuzz-input.ts";

/** Sends inputs to servers on 127.0.0.1. */
export interface FuzzSender {
  /** Error in the response, in one line; `undefined` without an error. Never rejects. */
  send(input: FuzzInput): Promise<string | undefined>;
  close(): void;
}

/** No answer takes longer: else it is a hang. */
const longestMs = 20_000;
/** How long a connection that is neither ended nor cut is left open. */
const waitMs = 30;

/** Accepted statuses: Triton returns 501 for unsupported operations. */
const fineServerErrors: Readonly<Record<FuzzTarget, readonly number[]>> = {
  embed: [503],
  "triton-http": [501, 503],
  "triton-metrics": [503],
  "triton-grpc": [],
};

/** A model that cannot be loaded is an internal error to Triton, and so it is here. */
const loadRefusal = /failed to load '|load failed for model '/;

const fineGrpcCodes: readonly status[] = [
  status.OK,
  status.CANCELLED,
  status.INVALID_ARGUMENT,
  status.NOT_FOUND,
  status.RESOURCE_EXHAUSTED,
  status.UNIMPLEMENTED,
  status.UNAVAILABLE,
];

/** @param onAnswer - Told of each answer: `embed 200`, `triton-grpc NOT_FOUND`; of a connection, only its target. */
export function openFuzzSender(
  ports: Readonly<Record<FuzzTarget, number>>,
  onAnswer: (what: string) => void,
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
          return sendHttp(input, ports[input.target], agent, onAnswer);
        case "socket":
          onAnswer(`${input.target} connection`);
          return sendBytes(input, ports[input.target]);
        case "grpc":
          return sendGrpc(input, grpc, onAnswer);
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
  onAnswer: (what: string) => void,
): Promise<string | undefined> {
  const first = await askHttp(input, port, agent);
  // a close of an idle connection is not a server error
  const answer = first === "ECONNRESET" ? await askHttp(input, port, undefined) : first;
  if (typeof answer === "string") return answer;
  const { status: code, text } = answer;
  onAnswer(`${input.target} ${code}`);
  const mayTimeOut =
    code === 504 && input.target === "embed" && input.path.includes(`${timeoutParameter}=`);
  const refused = input.path.endsWith("/load") && loadRefusal.test(text);
  if (code >= 500 && !mayTimeOut && !refused && !fineServerErrors[input.target].includes(code)) {
    return `status ${code}: ${text.slice(0, 300)}`;
  }
  if (input.target === "embed" && code >= 400 && input.method !== "HEAD") {
    const ready = input.path.startsWith("/readyz");
    if (!ready && !embedErrorResponse.safeParse(jsonOf({ body: Buffer.from(text) })).success) {
      return `status ${code} without a reason: ${text.slice(0, 300)}`;
    }
  }
  return undefined;
}

function askHttp(
  { method, path, headers, body }: HttpInput,
  port: number,
  agent: Agent | undefined,
): Promise<{ readonly status: number; readonly text: string } | string> {
  return new Promise((resolve) => {
    const all = { ...headers, "content-length": String(body.length) };
    const sent = request(
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
    sent.setTimeout(longestMs, () => {
      resolve(`no answer in ${longestMs / 1000} s`);
      sent.destroy();
    });
    sent.once("error", (error: NodeJS.ErrnoException) =>
      resolve(error.code === "ECONNRESET" ? "ECONNRESET" : `no answer: ${error.message}`),
    );
    sent.end(body);
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
      resolve(`the connection was not closed in ${longestMs / 1000} s`);
      socket.destroy();
    }, longestMs);
    socket.on("data", (data) => {
      if (received.length < 100_000) received += data.toString("latin1");
    });
    socket.on("error", () => {});
    socket.once("close", () => {
      clearTimeout(hang);
      const bad = [...received.matchAll(/^HTTP\/1\.1 (5\d\d) .*$/gm)].find(
        ([, code]) => code !== "505" && !fineServerErrors[target].includes(Number(code)),
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
  onAnswer: (what: string) => void,
): Promise<string | undefined> {
  const same = (bytes: Buffer) => bytes;
  const deadline = Date.now() + (deadlineMs ?? longestMs);
  return new Promise((resolve) => {
    const done = (error: ServiceError | null) => {
      const code = error?.code ?? status.OK;
      onAnswer(`triton-grpc ${status[code]}`);
      const asked = code === status.DEADLINE_EXCEEDED && deadlineMs !== undefined;
      // gRPC's own error for an invalid message
      const unread = code === status.INTERNAL && /deserializ|decod/i.test(error?.details ?? "");
      const refused = code === status.INTERNAL && loadRefusal.test(error?.details ?? "");
      if (asked || unread || refused || fineGrpcCodes.includes(code)) resolve(undefined);
      else resolve(`gRPC status ${status[code]}: ${error?.details.slice(0, 300)}`);
    };
    client.makeUnaryRequest(path, same, same, Buffer.from(message), { deadline }, done);
  });
}
