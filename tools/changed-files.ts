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
  const markOf = (text: string) => {
    const found = changed.filter((file) => reads(text, file)).sort();
    if (found.length === 0) return "";
    return `#${createHash("sha256").update(found.join("\n")).digest("hex").slice(0, 12)}`;
  };
  const marked = (value: unknown): unknown => {
    if (typeof value === "string") return `${value}${markOf(value)}`;
    if (Array.isArray(value)) return value.map(marked);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, marked(inner)]));
  };
  const stack = { ...JSON.parse(document), filesCompared: true };
  const text = JSON.stringify(marked(stack), undefined, 2);
  // references to a marked local must change as well
  return [...markedLocals(stack.locals ?? {}, markOf)].reduce(
    (all, [name, mark]) =>
      all
        .replaceAll(`local.${name}`, `local.${name}${mark}`)
        .replaceAll(`"${name}":`, `"${name}${mark}":`),
    text,
  );
}

/** Suffixes for the names of locals with changed values, by name. */
function markedLocals(
  locals: Readonly<Record<string, unknown>>,
  markOf: (text: string) => string,
): ReadonlyMap<string, string> {
  const marks = new Map<string, string>();
  for (let size = -1; size < marks.size; ) {
    size = marks.size;
    for (const [name, value] of Object.entries(locals)) {
      if (typeof value !== "string" || marks.has(name)) continue;
      const inner = [...marks].find(([other]) => value.includes(`local.${other}`))?.[1] ?? "";
      const mark = markOf(value).replace("#", "_") || inner;
      if (mark !== "") marks.set(name, mark);
    }
  }
  return marks;
}

/** Returns whether an expression reads a file by its name or in a `fileset`. */
function reads(expression: string, file: string): boolean {
  const resolved = (folder: string) =>
    posix.join(stackFolder, folder.replace(/^\$\{path\.root\}/, "."));
  const named = [...expression.matchAll(/\bfile(?:sha256|md5|base64)?\("([^"]+)"\)/g)];
  if (named.some(([, path = ""]) => resolved(path) === file)) return true;
  const [, ignored] = /\bregexall\("((?:[^"\\]|\\.)*)", file\)/.exec(expression) ?? [];
  return [...expression.matchAll(/\bfileset\("([^"]+)", "([^"]+)"\)/g)].some(
    ([, folder = "", pattern = ""]) => {
      const inside = posix.relative(resolved(folder), file);
      if (inside.startsWith("../") || !isInFileset(inside, pattern)) return false;
      return ignored === undefined || !new RegExp(ignored.replaceAll("\\\\", "\\")).test(inside);
    },
  );
}

/** Returns whether a path matches a pattern of Terraform's `fileset`; its wildcards also match dotfiles. */
function isInFileset(path: string, pattern: string): boolean {
  return picomatch.isMatch(path, pattern, { dot: true, noextglob: true, nonegate: true });
}
