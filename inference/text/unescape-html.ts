import { decodeHTML, decodeHTMLStrict } from "entities/decode";
import { windows1252 } from "./windows-1252.ts";

/** Reference as Python's `html.unescape` finds it: the semicolon may be missing, and other characters may follow the name. */
const reference = /&(#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)/gu;

/** Decodes HTML's character references as Python's `html.unescape`. */
export function unescapeHtml(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(reference, (found) =>
    found.startsWith("&#") ? numericReference(found) : decodeHTML(found),
  );
}

/** Character references that end with a semicolon, by name or number, as in ftfy. */
const unambiguous = /&#?[0-9A-Za-z]{1,24};/g;

/**
 * An ampersand that was encoded several times, such as `&amp;amp;`. Decoded at once, because the callers repeat the decoding
 * until nothing changes.
 */
const encodedAmpersands = /&(?:(?:amp|AMP|#0{0,20}38|#[xX]0{0,20}26);)+/g;

/** Decodes HTML's unambiguous character references as ftfy's `unescape_html`, including upper-case forms of lower-case names, such as `&EACUTE;`. */
export function unescapeUnambiguousHtml(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(encodedAmpersands, "&amp;").replace(unambiguous, (found) => {
    if (found.startsWith("&#")) {
      const decoded = unescapeHtml(found);
      return decoded.includes(";") ? found : decoded;
    }
    const decoded = decodeHTMLStrict(found);
    if (decoded !== found) return decoded;
    if (found !== found.toUpperCase() || unescapeHtml(found) !== found) return found;
    const lowerCase = found.toLowerCase();
    const lowerDecoded = decodeHTMLStrict(lowerCase);
    return lowerDecoded === lowerCase ? found : lowerDecoded.toUpperCase();
  });
}

function numericReference(found: string): string {
  const digits = found.slice(2).replace(";", "");
  const code = /^[xX]/.test(digits) ? Number.parseInt(digits.slice(1), 16) : Number(digits);
  if (code === 0) return "\ufffd";
  if (code === 0x0d) return "\r";
  if (code >= 0x80 && code <= 0x9f) return windows1252(String.fromCharCode(code));
  if ((code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff) return "\ufffd";
  return isForbidden(code) ? "" : String.fromCodePoint(code);
}

/** Control characters and noncharacters, for which Python returns nothing. */
function isForbidden(code: number): boolean {
  const isControl = code < 0x20 && ![0x09, 0x0a, 0x0c].includes(code);
  return (
    isControl || code === 0x7f || (code >= 0xfdd0 && code <= 0xfdef) || (code & 0xfffe) === 0xfffe
  );
}
