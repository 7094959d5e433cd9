/** Returns the token ids of a cleaned text, without begin, end and padding. */
export type TokenIds = (text: string) => readonly number[];
