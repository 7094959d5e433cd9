/**
 * Returns the first token ids of a cleaned text, without begin, end and padding. Reads only as much of the text as they depend on.
 *
 * @param limit - Number of ids that are used; more may be returned.
 */
export type TokenIds = (text: string, limit: number) => readonly number[];
