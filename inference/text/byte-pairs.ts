/** Vocabulary of byte pair encoding. */
export interface BytePairs {
  /** Ids of the tokens. Ids of merged tokens are in the order of their ranks: the lowest is merged first. */
  readonly encoder: Readonly<Record<string, number>>;
  /** Pairs of tokens that are merged. */
  readonly merges: readonly (readonly [left: string, right: string])[];
}

/** Suffix of a token at the end of a word. */
const endOfWord = "</w>";

/** Prefix of a word that is encoded first, in symbols per id. */
const symbolsPerId = 3;

/** Byte pair encoding of words, of which only the beginning is read if that determines the ids. */
export class BytePairEncoder {
  readonly #encoder: BytePairs["encoder"];
  /** Merged token of two tokens, by {@link pairOf}. */
  readonly #merged = new Map<number, number>();
  /** The two tokens of a merged token. */
  readonly #parts = new Map<number, readonly [left: number, right: number]>();
  /** Length of each token in symbols, by its id. */
  readonly #lengths: Uint8Array;
  readonly #longest: number;

  constructor({ encoder, merges }: BytePairs) {
    this.#encoder = encoder;
    this.#lengths = new Uint8Array(Object.keys(encoder).length);
    for (const [token, id] of Object.entries(encoder)) {
      this.#lengths[id] = token.replace(endOfWord, "").length;
    }
    this.#longest = Math.max(...merges.map(([left, right]) => left.length + right.length));
    for (const [left, right] of merges) {
      const parts = [encoder[left]!, encoder[right]!] as const;
      const merged = encoder[left + right]!;
      this.#merged.set(pairOf(...parts), merged);
      this.#parts.set(merged, parts);
    }
  }

  /**
   * Returns the token ids of a word: all, or at least the first `limit` of a long word.
   *
   * @param word - One character per byte, as in the vocabulary.
   */
  encode(word: string, limit: number): readonly number[] {
    for (let symbols = limit * symbolsPerId; symbols < word.length; symbols *= 2) {
      const ids = this.#merge([...word.slice(0, symbols)], word);
      if (ids.length >= limit) return ids;
    }
    const symbols = [...word];
    symbols.push(`${symbols.pop()}${endOfWord}`);
    return this.#merge(symbols, word);
  }

  /**
   * Merges symbols at the beginning of a word. If they are not the whole word, returns only tokens that the rest cannot change: from
   * the last one on, a token is dropped as soon as it could be merged with what follows.
   */
  #merge(symbols: readonly string[], word: string): readonly number[] {
    let tokens = symbols.map((symbol) => this.#encoder[symbol]!);
    let end = symbols.length;
    /** Rank of the last merge. */
    let rank = -1;
    for (;;) {
      const last = tokens.at(-1);
      const next = this.#lowest(tokens);
      const across = last === undefined ? none : this.#acrossEnd(last, word, end, rank);
      if (next === none && across === none) return tokens;
      rank = Math.min(next, across);
      if (next === rank) tokens = this.#mergeAll(tokens, rank);
      if (across === rank && tokens.at(-1) === last) {
        tokens.pop();
        end -= this.#lengths[last!]!;
      }
    }
  }

  /** Lowest merge of two tokens in sequence. */
  #lowest(tokens: readonly number[]): number {
    let lowest = none;
    for (let at = 1; at < tokens.length; at++) {
      const merged = this.#merged.get(pairOf(tokens[at - 1]!, tokens[at]!));
      if (merged !== undefined && merged < lowest) lowest = merged;
    }
    return lowest;
  }

  #mergeAll(tokens: readonly number[], merged: number): number[] {
    const [left, right] = this.#parts.get(merged)!;
    const result: number[] = [];
    for (let at = 0; at < tokens.length; at++) {
      const isPair = tokens[at] === left && tokens[at + 1] === right;
      result.push(isPair ? merged : tokens[at]!);
      if (isPair) at++;
    }
    return result;
  }

  /** Lowest merge above `rank` of a token with any token that could follow it at `end` in the word. */
  #acrossEnd(token: number, word: string, end: number, rank: number): number {
    let lowest = none;
    let following = "";
    for (const symbol of word.slice(end, end + this.#longest)) {
      following += symbol;
      for (const right of [this.#encoder[following], this.#encoder[following + endOfWord]]) {
        const merged = right === undefined ? none : this.#merged.get(pairOf(token, right));
        if (merged !== undefined && merged > rank && merged < lowest) lowest = merged;
      }
    }
    return lowest;
  }
}

/** Rank of a merge that does not exist. */
const none = Number.POSITIVE_INFINITY;

function pairOf(left: number, right: number): number {
  return left * 65_536 + right;
}
