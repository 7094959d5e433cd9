import { quantity } from "../../contract/quantity.ts";
import type { Path, ResourceChange, Values } from "../input/change.ts";
import { commandWord, hasSecretPattern, hidden } from "../input/secrets.ts";
import { secondsOf } from "../input/stack-facts.ts";
import { blocksOf, isObject } from "../input/value-paths.ts";

/**
 * Reading the values of a resource. A block is an object in a synthesized file and a list of one in a plan; text that
 * only Terraform knows is an expression (`${…}`) in the first and missing in the second.
 */

/** A block that there is one of. */
export function block(value: unknown): Values | undefined {
  return isObject(value) ? value : blocksOf(value)[0];
}

/** Blocks that there may be several of. */
export const blocks: (value: unknown) => readonly Values[] = blocksOf;

/** What lies at `path`; a name goes into the first of several blocks. */
export function at(value: unknown, ...path: Path): unknown {
  return path.reduce<unknown>((inner, step) => {
    if (typeof step === "number") return Array.isArray(inner) ? inner[step] : undefined;
    return block(inner)?.[step];
  }, value);
}

export function isExpression(value: unknown): boolean {
  return typeof value === "string" && value.includes("${");
}

/** Text that is known; a number as text. */
export function text(value: unknown): string | undefined {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && !isExpression(value) ? value : undefined;
}

/** A number that is known, also where it is written as text. */
export function number(value: unknown): number | undefined {
  const known = text(value);
  return known === undefined || !/^-?\d+(\.\d+)?$/.test(known) ? undefined : Number(known);
}

/** A list, or one value as a list; what is not given is empty. */
export function list(value: unknown): readonly unknown[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}

/** Texts of a list, expressions as they are. */
export function texts(value: unknown): readonly string[] {
  return list(value).filter((item) => typeof item === "string");
}

/** Values of a map that are known. */
export function map(value: unknown): Readonly<Record<string, string>> {
  const entries = Object.entries(block(value) ?? {}).flatMap(([key, inner]) => {
    const known = text(inner);
    return known === undefined ? [] : [[key, known] as const];
  });
  return Object.fromEntries(entries);
}

export function isSet(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/** Whether something is really not there, and not only unknown until it is applied. */
export function isMissing({ after, unknown }: ResourceChange, ...path: Path): boolean {
  const reaches = (known: Path) => {
    const shorter = Math.min(known.length, path.length);
    const start = (steps: Path) => steps.slice(0, shorter).join("\n");
    return start(known) === start(path);
  };
  const value = at(after, ...path);
  const empty = Array.isArray(value) && value.length === 0;
  return (!isSet(value) || empty) && !unknown.some(reaches);
}

/** Whether a value names an attribute of `resource`, by its value or by an expression. */
export function refersTo(value: unknown, resource: ResourceChange, name?: string): boolean {
  if (typeof value !== "string") return false;
  return isExpression(value)
    ? value.includes(`\${${resource.type}.${resource.name}.`)
    : name !== undefined && value === name;
}

/** Seconds of a duration as Go writes it: `1m30s`. */
export function goSeconds(value: unknown): number | undefined {
  const known = text(value);
  return known === "0" ? 0 : secondsOf(known);
}

/** A command line as a reader may see it: a word of which nobody can say that it is no password is not shown. */
export function commandText(words: readonly string[]): string {
  return words.map((word, index) => safeWord(words, word, index)).join(" ");
}

function safeWord(words: readonly string[], word: string, index: number): string {
  if (hasSecretPattern(word)) return hidden;
  const { option, value } = commandWord(words, index);
  return [option, value].filter((part) => part !== undefined).join("=");
}

/** The value of an option, as a reader may see it. */
export function optionText(name: string, value: string): string {
  const { value: shown = "" } = commandWord([`--${name}=${value}`], 0);
  return shown;
}

/** A path of a URL without what is asked for in it. */
export function pathOnly(url: string): string {
  const path = url.replace(/[?#].*$/s, "");
  return /^\/[\w./-]{0,200}$/.test(path) && !hasSecretPattern(path) ? path : hidden;
}

/** Memory of Kubernetes in MiB: `1Gi` is 1024. */
export function memoryMiB(value: unknown): number | undefined {
  const bytes = quantity(text(value) ?? "");
  return Number.isNaN(bytes) ? undefined : bytes / 2 ** 20;
}

/** CPU of Kubernetes in thousandths of a core: `250m`, `1.5`. */
export function cpuMillicores(value: unknown): number | undefined {
  const cores = quantity(text(value) ?? "");
  return Number.isNaN(cores) ? undefined : Math.round(cores * 1e9) / 1e6;
}
