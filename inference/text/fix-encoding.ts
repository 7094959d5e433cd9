import { embeddedUtf8, isMojibake } from "./mojibake-patterns.ts";
import { decodeBytes, encodings, windows1252 } from "./one-byte-encodings.ts";

/**
 * Repairs mojibake as ftfy's `fix_encoding` 6.3.1 (Copyright 2023 Robyn Speer, Apache License 2.0): text in UTF-8 that was decoded
 * with a one-byte encoding, also repeatedly.
 *
 * Bytes are strings of the characters U+0000 to U+00FF here.
 */
export function fixEncoding(text: string): string {
  let fixed = text;
  for (;;) {
    const before = fixed;
    fixed = fixOnce(fixed);
    if (fixed === before) return fixed;
  }
}

function fixOnce(text: string): string {
  if (isAscii(text) || !isMojibake(text)) return text;
  const encoded = encodings.flatMap((encoding) => {
    const bytes = encoding.encode(text);
    return bytes === undefined ? [] : [{ encoding, bytes }];
  });
  for (const { encoding, bytes } of encoded) {
    const restored = encoding.name === "macroman" ? bytes : restoreSpaces(bytes);
    const decoded = decodeUtf8(encoding.isSloppy ? replaceLost(restored) : restored);
    if (decoded !== undefined) return decoded;
  }
  const inner = text.replace(embeddedUtf8, (part) =>
    part.length < text.length && isMojibake(part) ? fixEncoding(part) : part,
  );
  if (inner !== text) return inner;
  if (encoded.some(({ encoding }) => encoding.name === "latin-1")) {
    const decoded = /[\u0081\u008d\u008f\u0090\u009d]/.test(text) ? text : windows1252(text);
    if (decoded !== text) return decoded;
  }
  return fixC1Controls(text);
}

/** Decodes control characters U+0080 to U+009F as windows-1252. */
export function fixC1Controls(text: string): string {
  return text.replace(/[\u0080-\u009f]+/g, windows1252);
}

function isAscii(text: string): boolean {
  return !/[^\p{ASCII}]/u.test(text);
}

/** UTF-8 sequences in which byte A0 has become a space. */
const spaceInUtf8 = new RegExp(
  [
    "[\xc2\xc3\xc5\xce\xd0\xd9] ",
    "[\xe2\xe3] [\x80-\x84\x86-\x9f\xa1-\xbf]",
    "[\xe0-\xe3][\x80-\x84\x86-\x9f\xa1-\xbf] ",
    "\xf0 [\x80-\xbf][\x80-\xbf]",
    "\xf0[\x80-\xbf] [\x80-\xbf]",
    "\xf0[\x80-\xbf][\x80-\xbf] ",
  ].join("|"),
  "g",
);

function restoreSpaces(bytes: string): string {
  // nothing is replaced unless the pattern is found before the words with à are
  if (bytes.search(spaceInUtf8) < 0) return bytes;
  return bytes
    .replace(/\xc3 (?! |quele|quela|quilo|s )/g, "\xc3\xa0 ")
    .replace(spaceInUtf8, (sequence) => sequence.replaceAll(" ", "\xa0"));
}

/** Byte that replaces a lost one in the sloppy encodings. */
const lost = "\u001a";

/** UTF-8 sequences with lost bytes, and lost bytes alone. */
const lostInUtf8 = new RegExp(
  [
    `[\xc2-\xdf]${lost}`,
    "[\xc2-\xc3][?]",
    `\xed[\xa0-\xaf][${lost}?]\xed[\xb0-\xbf][${lost}?\x80-\xbf]`,
    `\xed[\xa0-\xaf][${lost}?\x80-\xbf]\xed[\xb0-\xbf][${lost}?]`,
    `[\xe0-\xef][${lost}?][${lost}\x80-\xbf]`,
    `[\xe0-\xef][${lost}\x80-\xbf][${lost}?]`,
    `[\xf0-\xf4][${lost}?][${lost}\x80-\xbf][${lost}\x80-\xbf]`,
    `[\xf0-\xf4][${lost}\x80-\xbf][${lost}?][${lost}\x80-\xbf]`,
    `[\xf0-\xf4][${lost}\x80-\xbf][${lost}\x80-\xbf][${lost}?]`,
    lost,
  ].join("|"),
  "g",
);

function replaceLost(bytes: string): string {
  return bytes.replace(lostInUtf8, "\xef\xbf\xbd"); // U+FFFD
}

/** Decodes UTF-8, also with surrogates (CESU-8) and with Java's two bytes for U+0000; undefined if the bytes are invalid. */
function decodeUtf8(bytes: string): string | undefined {
  return /[\xed\xc0]/.test(bytes) ? decodeVariants(bytes) : decodeBytes("utf-8", bytes);
}

// `$`, as in Python, is also the position before a line break at the end
const end = "(?=\\n?$)";
const surrogatePair = `\xed(?:[\xa0-\xaf]|${end})(?:[\x80-\xbf]|${end})(?:\xed|${end})(?:[\xb0-\xbf]|${end})(?:[\x80-\xbf]|${end})`;
const startsWithPair = new RegExp(`^${surrogatePair}`);
const specialBytes = new RegExp(
  `\xc0(?:\x80|${end})|${surrogatePair}|\xed(?:[\xa0-\xbf]|${end})(?:[\x80-\xbf]|${end})`,
);

function decodeVariants(bytes: string): string | undefined {
  let text = "";
  let rest = bytes;
  while (rest !== "") {
    const special = rest.search(specialBytes);
    if (special !== 0) {
      const part = special < 0 ? rest : rest.slice(0, special);
      const decoded = decodeBytes("utf-8", part);
      if (decoded === undefined) return undefined;
      text += decoded;
      rest = rest.slice(part.length);
    } else if (rest.startsWith("\xc0")) {
      if (rest.length === 1) return undefined;
      text += "\0";
      rest = rest.slice(2);
    } else {
      if (rest.length < 6 || !startsWithPair.test(rest)) return undefined;
      text += codePointOfPair(rest);
      rest = rest.slice(6);
    }
  }
  return text;
}

/** Character of six bytes 11101101 1010abcd 10efghij 11101101 1011klmn 10opqrst: 0x10000 + abcdefghijklmnopqrst. */
function codePointOfPair(bytes: string): string {
  const bits = (index: number, mask: number) => bytes.charCodeAt(index) & mask;
  const number =
    (bits(1, 0x0f) << 16) + (bits(2, 0x3f) << 10) + (bits(4, 0x0f) << 6) + bits(5, 0x3f);
  return String.fromCodePoint(number + 0x1_0000);
}
