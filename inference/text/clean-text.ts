import type { TextInput } from "../../contract/model-spec.ts";
import { fixText } from "./fix-text.ts";
import { unescapeHtml } from "./unescape-html.ts";

/** White space as in Python's `str.split`, which includes four separators among the control characters. */
const separators = "\u001c-\u001f";
const whitespace = new RegExp(`[\\p{White_Space}${separators}]+`, "u");

const steps: Readonly<Record<TextInput["cleaning"][number], (text: string) => string>> = {
  "fix-unicode": fixText,
  "unescape-html-twice": (text) => unescapeHtml(unescapeHtml(text)),
  "collapse-whitespace": (text) =>
    text
      .split(whitespace)
      .filter((part) => part !== "")
      .join(" "),
  "lower-case": (text) => text.toLowerCase(),
};

/** Applies the cleaning steps of a text tower, in the given order. */
export function cleanText(text: string, cleaning: TextInput["cleaning"]): string {
  return cleaning.reduce((cleaned, step) => steps[step](cleaned), text);
}
