/** Input of one server. Plain data, because inputs that cause a failure are saved as JSON for `--replay`. */
export type FuzzInput = HttpInput | SocketInput | GrpcInput;

export const fuzzTargets = ["embed", "triton-http", "triton-metrics", "triton-grpc"] as const;
export type FuzzTarget = (typeof fuzzTargets)[number];

export interface HttpInput {
  readonly kind: "http";
  readonly target: Exclude<FuzzTarget, "triton-grpc">;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** Bytes on a new connection. */
export interface SocketInput {
  readonly kind: "socket";
  readonly target: FuzzTarget;
  readonly pieces: readonly Uint8Array[];
  /** What follows the last piece: the end of the stream (`end`), the end of the connection (`cut`), or a pause with both open (`wait`). */
  readonly ending: "end" | "cut" | "wait";
}

/** Unary gRPC call. */
export interface GrpcInput {
  readonly kind: "grpc";
  readonly target: "triton-grpc";
  readonly path: string;
  readonly message: Uint8Array;
  readonly deadlineMs?: number;
}
