import protobuf from "protobufjs";
import { invalidArgument } from "./oip-error.ts";

/** Fields of a `ModelInferRequest` that identify it. */
export interface InferHead {
  readonly model_name: string;
  readonly model_version: string;
  readonly id: string;
}

const headType = protobuf
  .parse(
    'syntax = "proto3"; message Head { string model_name = 1; string model_version = 2; string id = 3; }',
    { keepCase: true },
  )
  .root.lookupType("Head");

/**
 * Reads the head of a request, skipping the tensors.
 *
 * @throws {OipError} `invalid-argument` for an invalid message.
 */
export function readHead(message: Buffer): InferHead {
  try {
    return headType.toObject(headType.decode(message), { defaults: true }) as InferHead;
  } catch (error) {
    throw invalidArgument(`failed to parse the request: ${(error as Error).message}`, error);
  }
}
