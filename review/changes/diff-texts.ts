import { hasSecretPattern, hidden, isSecretName, shortenedText } from "../input/secrets.ts";
import { type DiffLine, lineOf } from "./diff-line.ts";

/** Values as short texts without secrets. */

/** Maximum length of a printed text. */
export const longText = 160;

/** Map key, hidden if it may be a secret. */
export function safeKey(key: string): string {
  return hasSecretPattern(key) ? hidden : short(key);
}

export function textOf(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A text as one line of bounded length; `scrubber` knows what it makes of a secret. */
export function short(text: string): string {
  const line = shortenedText(text);
  return line.length <= longText ? line : `${line.slice(0, longText - 1)}…`;
}

/** Hides values of a configuration field that may be secrets. */
export function withoutSecrets({ path, before, after }: DiffLine): DiffLine {
  const clean = (text: string | undefined) =>
    text === undefined
      ? undefined
      : hasSecretPattern(text) ||
          path.split(/[.[\]]/).some(isSecretName) ||
          (path.endsWith("string_value") &&
            !/^"(-?\d{1,12}(\.\d{1,6})?|true|false|yes|no)"$/.test(text))
        ? hidden
        : short(text);
  return lineOf(safeKey(path), clean(before), clean(after));
}
