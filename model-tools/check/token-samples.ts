import type { TextInput } from "../../contract/model-spec.ts";
import type { TokenRow } from "../../inference/session/token-tensor.ts";

/**
 * Token ids that are the same everywhere, for running a text tower without its tokenizer: rows of every length, the first of them
 * full, with begin, end and padding as in the spec.
 */
export function sampleTokenIds(input: TextInput, count: number): readonly TokenRow[] {
  const { contextLength, vocabularySize, beginId, endId, paddingId, idType } = input;
  const special = [beginId, endId, paddingId];
  let random = 1;
  const word = () => {
    random = (Math.imul(random, 1_664_525) + 1_013_904_223) | 0;
    const id = (random >>> 8) % vocabularySize;
    const candidates = special.map((_, step) => (id + step + 1) % vocabularySize);
    return special.includes(id) ? (candidates.find((other) => !special.includes(other)) ?? id) : id;
  };
  const ends = special.slice(0, 2).filter((id) => id !== undefined).length;
  return Array.from({ length: count }, (_, row) => {
    const words = contextLength - ends - ((row * 7) % (contextLength - ends));
    const ids = [
      ...(beginId === undefined ? [] : [beginId]),
      ...Array.from({ length: words }, word),
      ...(endId === undefined ? [] : [endId]),
    ];
    ids.push(...Array<number>(contextLength - ids.length).fill(paddingId));
    return idType === "int32" ? Int32Array.from(ids) : BigInt64Array.from(ids, BigInt);
  });
}
