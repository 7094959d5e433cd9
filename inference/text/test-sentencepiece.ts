import { fileURLToPath } from "node:url";
import type { TextInput } from "../../contract/model-spec.ts";
import { siglip2Base224 } from "../../contract/models/siglip2-base-224.ts";
import { trainedPieces } from "./test-texts.ts";

/** Model with the settings of SigLIP 2's and few pieces, written by `test-tokenizer-reference.py train-sentencepiece`. */
export const testModel = fileURLToPath(new URL("./test-sentencepiece.model", import.meta.url));

/** SigLIP 2's text input for {@link testModel}, without the cleaning, which SentencePiece does not do. */
export const testSentencePiece = {
  ...siglip2Base224.towers.text!.input,
  vocabularySize: trainedPieces,
  tokenizer: { kind: "sentencepiece", file: "test-sentencepiece.model" },
  cleaning: [],
  truncation: "cut",
} satisfies TextInput;
