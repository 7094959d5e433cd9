import protobuf from "protobufjs";
import { OipError } from "./oip-error.ts";

/** The fields of a `ModelInferRequest` that identify it. */
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
 * Reads the head of a request; the tensors that follow are skipped.
 *
 * @throws {OipError} `invalid-argument` when it is no such message.
 */
export function readHead(message: Buffer): InferHead {
  try {
    return headType.toObject(headType.decode(message), { defaults: true }) as InferHead;
  } catch (error) {
    throw new OipError(
      "invalid-argument",
      `failed to parse the request: ${(error as Error).message}`,
      { cause: error },
    );
  }
}
