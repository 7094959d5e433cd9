/**
 * Encodings of ftfy 6.3.1 with its sloppy codecs (Copyright 2023 Robyn Speer, Apache License 2.0), in the order in which ftfy tries
 * them. Their tables are those of the WHATWG standard, as Node has them, and of Unicode's mapping of code page 437.
 */

/** Encodings with one byte per character, as `sloppy` and standard codecs of ftfy and Python. Bytes are strings of U+0000 to U+00FF. */
export interface OneByteEncoding {
  readonly name: string;
  /** Unassigned bytes are the characters with the same number, and byte 1A is U+FFFD. */
  readonly isSloppy: boolean;
  /** Returns the bytes of a text; undefined if the encoding lacks a character. */
  encode(text: string): string | undefined;
}

const allBytes = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte));

/** Returns the bytes decoded with an encoding of the WHATWG standard; undefined if they are invalid. */
export function decodeBytes(label: string, bytes: string): string | undefined {
  try {
    const decoder = new TextDecoder(label, { fatal: true, ignoreBOM: true });
    return decoder.decode(Buffer.from(bytes, "latin1"));
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}

/** Characters 80 to 9F of windows-1252. Node's own decoder is not used, because it returns control characters for them. */
const windows1252Controls = "€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ";

/** Decodes characters up to U+00FF as bytes of windows-1252. Unassigned bytes are control characters. */
export function windows1252(bytes: string): string {
  return bytes.replace(
    /[\u0080-\u009f]/g,
    (byte) => windows1252Controls[byte.charCodeAt(0) - 0x80]!,
  );
}

function oneByteEncoding(name: string, characters: readonly string[]): OneByteEncoding {
  const bytes = new Map(characters.map((character, byte) => [character, allBytes[byte]!]));
  return {
    name,
    isSloppy: name.startsWith("windows-"),
    encode: (text) => {
      let encoded = "";
      for (const character of text) {
        const byte = bytes.get(character);
        if (byte === undefined) return undefined;
        encoded += byte;
      }
      return encoded;
    },
  };
}

function whatwgEncoding(name: string, label = name): OneByteEncoding {
  const characters = allBytes.map((byte) => decodeBytes(label, byte) ?? byte);
  return oneByteEncoding(name, characters);
}

/** windows-125x, in which byte 1A is U+FFFD. */
function sloppyEncoding(name: string): OneByteEncoding {
  const characters = allBytes.map((byte) =>
    name === "windows-1252" ? windows1252(byte) : (decodeBytes(name, byte) ?? byte),
  );
  return oneByteEncoding(name, characters.with(0x1a, "\ufffd"));
}

/** Upper half of code page 437, which the WHATWG standard lacks. */
const codePage437 =
  "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u00a0";

/** Encodings in the order in which they are tried. */
export const encodings: readonly OneByteEncoding[] = [
  oneByteEncoding("latin-1", allBytes),
  ...["1252", "1251", "1250", "1253", "1254", "1257"].map((page) =>
    sloppyEncoding(`windows-${page}`),
  ),
  whatwgEncoding("iso-8859-2"),
  whatwgEncoding("macroman", "macintosh"),
  oneByteEncoding("cp437", [...allBytes.slice(0, 128), ...codePage437]),
];
