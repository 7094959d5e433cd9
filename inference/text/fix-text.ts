import { unescapeUnambiguousHtml } from "./unescape-html.ts";
import { windows1252 } from "./windows-1252.ts";

/**
 * Repairs text as `ftfy.fix_text` 6.3.1, except for broken encodings ("mojibake"), line by line. HTML references are decoded up to the
 * first line that contains `<`. A port of parts of ftfy (Copyright 2023 Robyn Speer, Apache License 2.0) to TypeScript.
 */
export function fixText(text: string): string {
  const tag = text.indexOf("<");
  const start = tag < 0 ? text.length : text.lastIndexOf("\n", tag) + 1;
  return fixLines(text.slice(0, start), true) + fixLines(text.slice(start), false);
}

/** Applies all repairs until none changes the text. */
function fixLines(lines: string, decodesHtml: boolean): string {
  let text = lines;
  for (;;) {
    const before = text;
    if (decodesHtml) text = unescapeUnambiguousHtml(text);
    for (const repair of repairs) text = repair(text);
    if (text === before) return text;
  }
}

/** Combining marks of one character that are normalised together, because NFC orders them in quadratic time. */
const manyMarks = /(\P{M}?\p{M}{64})/u;

const escapeCharacter = "\u001b";
const terminalEscapes = new RegExp(`${escapeCharacter}\\[[\\p{Nd};]*[a-zA-Z]`, "gu");

/** Repairs after the HTML references, in ftfy's order. */
const repairs: readonly ((text: string) => string)[] = [
  windows1252, // control characters U+0080 to U+009F
  fixLatinLigatures,
  fixCharacterWidth,
  (text) => text.replace(/[\u201c-\u201f]/g, '"').replace(/[\u02bc\u2018-\u201b]/g, "'"),
  (text) => text.replace(/\r\n|[\r\u2028\u2029\u0085]/g, "\n"),
  (text) => text.replace(/\p{Surrogate}/gu, "\ufffd"),
  (text) => text.replace(terminalEscapes, ""),
  // control characters, except for white space, and byte order marks
  (text) =>
    text.replace(/(?![\t\n\f\r\u0080-\u009f])\p{Cc}|[\u206a-\u206f\ufeff\ufff9-\ufffc]/gu, ""),
  (text) =>
    text
      .split(manyMarks)
      .map((part) => part.normalize("NFC"))
      .join(""),
];

/** Latin ligatures and digraphs: their compatibility decomposition, but for two. */
function fixLatinLigatures(text: string): string {
  return text.replace(/[\u0132\u0133\u0149\u01c4-\u01cc\u01f1-\u01f3\ufb00-\ufb06]/g, (letter) =>
    letter === "\ufb05" ? "\u017ft" : letter.normalize("NFKC"),
  );
}

/** Half-width and full-width forms: their compatibility decomposition. */
function fixCharacterWidth(text: string): string {
  return text.replace(/[\u3000\uff01-\uffef]/g, (letter) => letter.normalize("NFKC"));
}
