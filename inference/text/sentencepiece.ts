/// <reference path="./sentencepiece-js.d.ts" />
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { SentencePieceProcessor } from "@agnai/sentencepiece-js";
import protobuf from "protobufjs";
import type { TextInput } from "../../contract/model-spec.ts";
import { messageOf } from "../../contract/user-error.ts";
import type { TokenIds } from "./token-ids.ts";

/**
 * Opens a SentencePiece model with Google's library, compiled to WebAssembly.
 *
 * @param path - Model file, such as `tokenizer.model`.
 * @throws {Error} with one line if the file cannot be read, has another checksum or is no model of this vocabulary size
 */
export async function openSentencePiece(
  { vocabularySize, tokenizer }: Pick<TextInput, "vocabularySize" | "tokenizer">,
  path: string,
): Promise<TokenIds> {
  const bytes = await readFile(path).catch((error) => {
    throw new Error(`tokenizer ${path} cannot be read: ${messageOf(error)}`);
  });
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  if (tokenizer.sha256 !== undefined && sha256 !== tokenizer.sha256) {
    throw new Error(`tokenizer ${path} must have SHA-256 ${tokenizer.sha256}, got ${sha256}`);
  }
  const pieces = pieceCount(bytes);
  if (pieces === undefined) throw new Error(`tokenizer ${path} must be a SentencePiece model`);
  if (pieces !== vocabularySize) {
    throw new Error(
      `tokenizer ${path} must have ${vocabularySize} pieces (vocabularySize), got ${pieces}`,
    );
  }
  const processor = new SentencePieceProcessor();
  await processor.load(path);
  return (text) => processor.encodeIds(text.replace(/\p{Surrogate}/gu, "\ufffd"));
}

/** Field of `ModelProto` with the pieces. */
const piecesField = 1;

/** Number of pieces in a serialized `ModelProto`, which the library does not return; undefined if it is not one. */
function pieceCount(bytes: Uint8Array): number | undefined {
  try {
    const reader = protobuf.Reader.create(bytes);
    let count = 0;
    while (reader.pos < reader.len) {
      const tag = reader.uint32();
      if (tag >>> 3 === piecesField) count++;
      reader.skipType(tag & 7);
    }
    return count > 0 ? count : undefined;
  } catch {
    return undefined;
  }
}
