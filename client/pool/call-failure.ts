import { status } from "../triton/grpc-status.ts";
import { TritonError } from "../triton/transport.ts";
import { CallError } from "../triton/unary-channel.ts";

/**
 * Consequence of a failed call in a pool:
 * - `request`: the request is invalid; the call is not repeated.
 * - `overload`, `connection`: repeated until its deadline. Health checks detect a broken connection.
 * - `unavailable`: repeated until its deadline, and counted as a failure of the server.
 * - `server`: repeated once on another server, and counted as a failure of the server.
 */
export type CallFailure = "request" | "overload" | "connection" | "unavailable" | "server";

const requestCodes: readonly number[] = [
  status.INVALID_ARGUMENT,
  status.FAILED_PRECONDITION,
  status.OUT_OF_RANGE,
  status.ALREADY_EXISTS,
];

export function callFailureOf(error: unknown): CallFailure {
  if (!(error instanceof TritonError)) return "request";
  const { cause } = error;
  if (error.code === "unavailable") {
    if (!(cause instanceof CallError) || cause.source === "connection") return "connection";
    const isQueue =
      cause.code === status.RESOURCE_EXHAUSTED || /queue|timeout/i.test(cause.details);
    return isQueue ? "overload" : "unavailable";
  }
  if (error.code === "protocol") return "server";
  if (error.code !== "rejected" || !(cause instanceof CallError)) return "request";
  // a server that stops unloads its models first (observed with 2.51) until its check fails
  if (cause.code === status.NOT_FOUND) return "connection";
  if (cause.code === status.RESOURCE_EXHAUSTED) return "request";
  return requestCodes.includes(cause.code) ? "request" : "server";
}
