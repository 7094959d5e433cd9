import { createHash } from "node:crypto";
import { posix } from "node:path";
import picomatch from "picomatch";

/** Folder of a synthesized stack, relative to the repository; paths in the stack are relative to it. */
const stackFolder = "cdktf.out/stacks/stack";

/**
 * Marks every expression that hashes or reads changed files in a synthesized stack. Terraform evaluates such expressions during the
 * plan; without the mark, two synthesized stacks with different files are equal.
 *
 * @param changed - Paths of the changed files, relative to the root of the checkout.
 */
export function withChangedFiles(document: string, changed: readonly string[]): string {
  const noteOf = (text: string) => {
    const found = changed.filter((file) => reads(text, file)).sort();
    if (found.length === 0) return "";
    return `#${createHash("sha256").update(found.join("\n")).digest("hex").slice(0, 12)}`;
  };
  const noted = (value: unknown): unknown => {
    if (typeof value === "string") return `${value}${noteOf(value)}`;
    if (Array.isArray(value)) return value.map(noted);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, noted(inner)]));
  };
  const stack = { ...JSON.parse(document), filesCompared: true };
  const text = JSON.stringify(noted(stack), undefined, 2);
  // references to a marked local must change as well
  return [...notedLocals(stack.locals ?? {}, noteOf)].reduce(
    (all, [name, note]) =>
      all
        .replaceAll(`local.${name}`, `local.${name}${note}`)
        .replaceAll(`"${name}":`, `"${name}${note}":`),
    text,
  );
}

/** Suffixes for the names of locals whose value changes. */
function notedLocals(
  locals: Readonly<Record<string, unknown>>,
  noteOf: (text: string) => string,
): ReadonlyMap<string, string> {
  const notes = new Map<string, string>();
  for (let size = -1; size < notes.size; ) {
    size = notes.size;
    for (const [name, value] of Object.entries(locals)) {
      if (typeof value !== "string" || notes.has(name)) continue;
      const inner = [...notes].find(([other]) => value.includes(`local.${other}`))?.[1] ?? "";
      const note = noteOf(value).replace("#", "_") || inner;
      if (note !== "") notes.set(name, note);
    }
  }
  return notes;
}

/** Returns whether an expression reads a file by its name or in a `fileset`. */
function reads(expression: string, file: string): boolean {
  const place = (folder: string) =>
    posix.join(stackFolder, folder.replace(/^\$\{path\.root\}/, "."));
  const named = [...expression.matchAll(/\bfile(?:sha256|md5|base64)?\("([^"]+)"\)/g)];
  if (named.some(([, path = ""]) => place(path) === file)) return true;
  const [, ignored] = /\bregexall\("((?:[^"\\]|\\.)*)", file\)/.exec(expression) ?? [];
  return [...expression.matchAll(/\bfileset\("([^"]+)", "([^"]+)"\)/g)].some(
    ([, folder = "", pattern = ""]) => {
      const inside = posix.relative(place(folder), file);
      if (inside.startsWith("../") || !isInFileset(inside, pattern)) return false;
      return ignored === undefined || !new RegExp(ignored.replaceAll("\\\\", "\\")).test(inside);
    },
  );
}

/** Returns whether a path matches a pattern of Terraform's `fileset`; its wildcards also match dotfiles. */
function isInFileset(path: string, pattern: string): boolean {
  return picomatch.isMatch(path, pattern, { dot: true, noextglob: true, nonegate: true });
}
