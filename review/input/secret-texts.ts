import { valueAt } from "../../contract/issue-lines.ts";
import type { Path, StackChange, Values } from "./change.ts";
import {
  hasSecretPattern,
  hidden,
  isSecretName,
  onlyExpression,
  shortenedText,
} from "./secrets.ts";
import { blocksOf, textsIn } from "./value-paths.ts";

/** Secret texts that no output may contain. */
export function secretTexts(changes: readonly StackChange[]): readonly string[] {
  const found = new Set<string>();
  const add = (text: string) => {
    if (!isRemovable(text)) return;
    const line = shortenedText(text);
    const quoted = JSON.stringify(text).slice(1, -1);
    for (const printed of [text, line, line.trim(), quoted]) {
      if (isRemovable(printed)) found.add(printed);
    }
  };
  const addAll = (value: unknown) => {
    for (const [path, text] of textsIn(value)) {
      const list = path.at(-2) ?? path.at(-1);
      const isVariable = typeof list === "string" && list.startsWith("env");
      add(text.replace(/^\w+=/, ""));
      if (!isVariable) add(text);
    }
  };
  for (const change of changes) {
    const { resources, drift, secrets = [] } = change;
    for (const text of secrets) add(text);
    for (const part of [change.configuration, change.configurationBefore]) {
      for (const text of configuredSecrets(part)) add(text);
    }
    for (const part of [change.environmentBefore, change.environmentAfter]) {
      for (const [, text] of textsIn(part)) for (const secret of passwordsOf(text)) add(secret);
    }
    for (const { type, sensitive, before, after } of [...resources, ...drift]) {
      for (const path of sensitive) {
        for (const values of [before, after]) {
          const value = valueAt(values, path);
          const isRelease = type === "helm_release" && path.length === 1 && path[0] === "metadata";
          addAll(isRelease ? blocksOf(value).map(withoutNames) : underItsKey(path, value));
        }
      }
    }
  }
  return [...found];
}

/** Omits the names of a release, which occur in other texts and are not secret. */
function withoutNames(metadata: Values): Values {
  const { name: _n, namespace: _s, chart: _c, version: _v, app_version: _a, ...rest } = metadata;
  return rest;
}

/** Secrets of providers, backends and variable defaults, by name and by format. */
function* configuredSecrets(configuration: unknown): Generator<string> {
  for (const [path, text] of textsIn(configuration)) {
    if (path.includes("references") || onlyExpression.test(text)) continue;
    const names = path.filter(
      (step) => typeof step === "string" && step !== "constant_value" && step !== "default",
    );
    const name = names.at(-1);
    if (typeof name === "string" && isSecretName(name)) yield text;
    else if (hasSecretPattern(text)) yield text;
    yield* passwordsOf(text);
  }
}

function passwordsOf(text: string): readonly string[] {
  const found = [...text.matchAll(/:\/\/([^/\s:@]{0,256}):([^/\s@]+)@/g)];
  return found.flatMap(([, , password = ""]) => [password]);
}

/** Keeps the key of a value, which tells whether it is a list of environment variables. */
function underItsKey(path: Path, value: unknown): unknown {
  const last = path.filter((step) => typeof step === "string").at(-1);
  return last === undefined ? value : { [last]: value };
}

/** Returns whether a secret can be removed without hiding ordinary words, numbers and booleans. */
function isRemovable(text: string): boolean {
  return text.length >= 6 && text.length <= 4_096 && !/^(-?[\d.]+|true|false)$/.test(text);
}

/** Shortest prefix of a secret that is hidden, in characters. */
const minPrefix = 4;

/**
 * Returns a function that removes secrets from a text, also truncated ones: `hunter2-is-m…`. A last safeguard in case a rule or message
 * copied or truncated one. Its time does not depend on the number of secrets.
 */
export function scrubber(secrets: readonly string[]): (text: string) => string {
  const all = new Set(secrets);
  const sorted = [...all].sort();
  const lengthsByHead = new Map<string, Set<number>>();
  for (const secret of all) {
    const head = secret.slice(0, minPrefix);
    lengthsByHead.set(head, (lengthsByHead.get(head) ?? new Set()).add(secret.length));
  }
  /** End of the longest secret that starts at a position; the position if there is none. */
  const endOf = (text: string, at: number, dots: number): number => {
    const lengths = lengthsByHead.get(text.slice(at, at + minPrefix));
    if (lengths === undefined) return at;
    const ends = [...lengths]
      .map((length) => at + length)
      .filter((end) => end <= text.length && all.has(text.slice(at, end)));
    const isTruncated =
      dots > at && dots - at < Math.max(...lengths) && startsAny(sorted, text.slice(at, dots));
    return Math.max(at, ...ends, isTruncated ? dots + 1 : 0);
  };
  return (text) => {
    let clean = "";
    let copied = 0;
    let dots = text.indexOf("…");
    for (let at = 0; at <= text.length - minPrefix; at += 1) {
      if (dots >= 0 && dots < at) dots = text.indexOf("…", at);
      const end = endOf(text, at, dots);
      if (end === at) continue;
      if (at >= copied) clean += text.slice(copied, at) + hidden;
      copied = Math.max(copied, end);
    }
    return clean + text.slice(copied);
  };
}

/** Returns whether one of the sorted texts starts with a prefix. */
function startsAny(sorted: readonly string[], prefix: string): boolean {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]! < prefix) low = middle + 1;
    else high = middle;
  }
  return sorted[low]?.startsWith(prefix) === true;
}
