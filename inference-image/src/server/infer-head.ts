import protobuf from "protobufjs";
import { OipError } from "./oip-error.ts";

/** The fields of a `ModelInferRequest` that say whose it is: 1, 2 and 3 of its message. */
export interface InferHead {
  readonly model_name: string;
  readonly model_version: string;
  readonly id: string;
}

const fields: Readonly<Record<number, keyof InferHead>> = {
  1: "model_name",
  2: "model_version",
  3: "id",
};

/** Wire type of strings and messages. */
const lengthDelimited = 2;

/**
 * Read the head of a request without the tensors that follow it, which are skipped.
 *
 * @throws {OipError} `invalid-argument` when it is no such message.
 */
export function readHead(message: Buffer): InferHead {
  const head = { model_name: "", model_version: "", id: "" };
  const reader = protobuf.Reader.create(message);
  try {
    while (reader.pos < reader.len) {
      const tag = reader.uint32();
      const field = (tag & 7) === lengthDelimited ? fields[tag >>> 3] : undefined;
      if (field === undefined) {
        reader.skipType(tag & 7);
        continue;
      }
      const length = reader.uint32();
      head[field] = message.toString("utf8", reader.pos, reader.pos + length);
      // throws beyond the end, which reading a string does not
      reader.skip(length);
    }
  } catch (error) {
    throw new OipError(
      "invalid-argument",
      `failed to parse the request: ${(error as Error).message}`,
      { cause: error },
    );
  }
  return head;
}
