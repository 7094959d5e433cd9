/** The package has no types. Only what is used here. */
declare module "@agnai/sentencepiece-js" {
  export class SentencePieceProcessor {
    load(path: string): Promise<void>;
    /** Well-formed text only: a lone surrogate becomes three invalid bytes. */
    encodeIds(text: string): number[];
  }
}
