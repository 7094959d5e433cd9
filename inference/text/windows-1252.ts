/** Characters 80 to 9F of windows-1252. Node's own decoder is not used, because it returns control characters for them. */
const controls = "€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ";

/** Decodes characters up to U+00FF as bytes of windows-1252. Unassigned bytes are control characters. */
export function windows1252(bytes: string): string {
  return bytes.replace(/[\u0080-\u009f]/g, (byte) => controls[byte.charCodeAt(0) - 0x80]!);
}
