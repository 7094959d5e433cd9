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
  const pieces = piecesOf(bytes);
  if (pieces === undefined) throw new Error(`tokenizer ${path} must be a SentencePiece model`);
  if (pieces.length !== vocabularySize) {
    throw new Error(
      `tokenizer ${path} must have ${vocabularySize} pieces (vocabularySize), got ${pieces.length}`,
    );
  }
  const processor = new SentencePieceProcessor();
  await processor.load(path);
  const wordsAreApart = !pieces.some((piece) => spaceInPiece.test(piece));
  return (text, limit) => {
    const used = wordsAreApart ? firstWords(text, limit) : text;
    return processor.encodeIds(used.replace(/\p{Surrogate}/gu, "\ufffd"));
  };
}

/** Space after another character, within a piece; SentencePiece writes it as U+2581. */
const spaceInPiece = /[^\u2581]\u2581/;

/** Returns the first words of a text: no piece crosses their ends, and each has at least one. */
function firstWords(text: string, count: number): string {
  let words = 0;
  for (const { index } of text.matchAll(/(?<=[^ \u2581])[ \u2581]/g)) {
    words += 1;
    if (words === count) return text.slice(0, index);
  }
  return text;
}

/** Field of `ModelProto` with the pieces, and field of a piece with its text. */
const [piecesField, pieceField] = [1, 1];

/** Pieces of a serialized `ModelProto`, which the library does not return; undefined if it is not one. */
function piecesOf(bytes: Uint8Array): readonly string[] | undefined {
  try {
    const reader = protobuf.Reader.create(bytes);
    const pieces: string[] = [];
    while (reader.pos < reader.len) {
      const tag = reader.uint32();
      if (tag >>> 3 === piecesField) pieces.push(pieceOf(protobuf.Reader.create(reader.bytes())));
      else reader.skipType(tag & 7);
    }
    return pieces.length > 0 ? pieces : undefined;
  } catch {
    return undefined;
  }
}

function pieceOf(reader: protobuf.Reader): string {
  let piece = "";
  while (reader.pos < reader.len) {
    const tag = reader.uint32();
    if (tag >>> 3 === pieceField) piece = reader.string();
    else reader.skipType(tag & 7);
  }
  return piece;
}
