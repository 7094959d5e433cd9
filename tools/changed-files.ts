import { createHash } from "node:crypto";
import { posix } from "node:path";

/** Where a stack is synthesized to: paths in it are relative to this folder. */
const stackFolder = "cdktf.out/stacks/stack";

/**
 * A synthesized stack in which every expression that hashes or reads files of this checkout is another text when one of these files
 * changed: Terraform evaluates it when it plans, two trees have the same text.
 *
 * @param changed - Paths of the files, relative to the root of the checkout.
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
  // what refers to such a local is another text, too
  return [...notedLocals(stack.locals ?? {}, noteOf)].reduce(
    (all, [name, note]) =>
      all
        .replaceAll(`local.${name}`, `local.${name}${note}`)
        .replaceAll(`"${name}":`, `"${name}${note}":`),
    text,
  );
}

/** Locals with another value, and what is added to their names. */
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

/** Whether an expression reads a file: it names it, or a set of files that it is in. */
function reads(expression: string, file: string): boolean {
  const place = (folder: string) =>
    posix.join(stackFolder, folder.replace(/^\$\{path\.root\}/, "."));
  const named = [...expression.matchAll(/\bfile(?:sha256|md5|base64)?\("([^"]+)"\)/g)];
  if (named.some(([, path = ""]) => place(path) === file)) return true;
  const [, ignored] = /\bregexall\("((?:[^"\\]|\\.)*)", file\)/.exec(expression) ?? [];
  return [...expression.matchAll(/\bfileset\("([^"]+)", "([^"]+)"\)/g)].some(
    ([, folder = "", pattern = ""]) => {
      const inside = posix.relative(place(folder), file);
      if (inside.startsWith("../") || !globOf(pattern).test(inside)) return false;
      return ignored === undefined || !new RegExp(ignored.replaceAll("\\\\", "\\")).test(inside);
    },
  );
}

/** A pattern of Terraform's `fileset`. */
function globOf(pattern: string): RegExp {
  const parts = pattern.split(/(\*\*\/|\*\*|\*|\?|\{[^}]*\})/);
  const source = parts.map((part, index) => {
    if (index % 2 === 0) return part.replaceAll(/[.+^$()|[\]\\]/g, "\\$&");
    if (part === "**/") return "(?:.*/)?";
    if (part === "**") return ".*";
    if (part === "*") return "[^/]*";
    if (part === "?") return "[^/]";
    const options = part.slice(1, -1).split(",");
    return `(?:${options.map((it) => it.replaceAll(/[.+^$()|[\]\\]/g, "\\$&")).join("|")})`;
  });
  return new RegExp(`^${source.join("")}$`);
}
