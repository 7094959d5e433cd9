import { quantity } from "../../contract/quantity.ts";
import type { Path, ResourceChange, Values } from "../input/change.ts";
import { commandWord, hasSecretPattern, hidden } from "../input/secrets.ts";
import { blocksOf, isObject, toList } from "../input/value-paths.ts";

/**
 * Readers of resource values. A block is an object in a synthesized file and a list in a plan. A value known only to
 * Terraform is an expression (`${…}`) in the former and missing in the latter.
 */

/** The only block of its name. */
export function block(value: unknown): Values | undefined {
  return isObject(value) ? value : blocksOf(value)[0];
}

export const blocks: (value: unknown) => readonly Values[] = blocksOf;

/** Value at a path; a name selects from the first of several blocks. */
export function at(value: unknown, ...path: Path): unknown {
  return path.reduce<unknown>((inner, step) => {
    if (typeof step === "number") return Array.isArray(inner) ? inner[step] : undefined;
    return block(inner)?.[step];
  }, value);
}

export function isExpression(value: unknown): boolean {
  return typeof value === "string" && value.includes("${");
}

/** Known text, or a number as text. */
export function text(value: unknown): string | undefined {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && !isExpression(value) ? value : undefined;
}

/** Known number, or a text that is one. */
export function number(value: unknown): number | undefined {
  const digits = text(value);
  return digits === undefined || !/^-?\d+(\.\d+)?$/.test(digits) ? undefined : Number(digits);
}

/** Texts of a list, including expressions. */
export function texts(value: unknown): readonly string[] {
  return toList(value).filter((item) => typeof item === "string");
}

/** Known values of a map. */
export function map(value: unknown): Readonly<Record<string, string>> {
  const entries = Object.entries(block(value) ?? {}).flatMap(([key, inner]) => {
    const word = text(inner);
    return word === undefined ? [] : [[key, word] as const];
  });
  return Object.fromEntries(entries);
}

export function isSet(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/** Returns whether a value is known only to Terraform: an expression, or unknown until the apply. */
export function isUnknown({ after, unknown }: ResourceChange, ...path: Path): boolean {
  const value = at(after, ...path);
  if (typeof value === "string" && isExpression(value)) return true;
  return unknown.some((known) => {
    const shorter = Math.min(known.length, path.length);
    return known.slice(0, shorter).join("\n") === path.slice(0, shorter).join("\n");
  });
}

/** Returns whether a value is absent, and not just unknown until the apply. */
export function isMissing(resource: ResourceChange, ...path: Path): boolean {
  const value = at(resource.after, ...path);
  const empty = Array.isArray(value) && value.length === 0;
  return (!isSet(value) || empty) && !isUnknown(resource, ...path);
}

export function refersTo(value: unknown, resource: ResourceChange, name?: string): boolean {
  if (typeof value !== "string") return false;
  return isExpression(value)
    ? value.includes(`\${${resource.type}.${resource.name}.`)
    : name !== undefined && value === name;
}

/** Printable command line; hides words that may be secrets. */
export function commandText(words: readonly string[]): string {
  return words.map((word, index) => safeWord(words, word, index)).join(" ");
}

function safeWord(words: readonly string[], word: string, index: number): string {
  if (hasSecretPattern(word)) return hidden;
  const { option, value } = commandWord(words, index);
  return [option, value].filter((part) => part !== undefined).join("=");
}

/** Printable value of an option. */
export function optionText(name: string, value: string): string {
  return commandWord([`--${name}=${value}`], 0).value ?? "";
}

/** Path of a URL without its query. */
export function pathOnly(url: string): string {
  const path = url.replace(/[?#].*$/s, "");
  return /^\/[\w./-]{0,200}$/.test(path) && !hasSecretPattern(path) ? path : hidden;
}

/** MiB of a Kubernetes quantity: 1024 of `1Gi`. */
export function memoryMiB(value: unknown): number | undefined {
  const bytes = quantity(text(value) ?? "");
  return Number.isNaN(bytes) ? undefined : bytes / 2 ** 20;
}

/** Thousandths of a core of a Kubernetes quantity: 250 of `250m`. */
export function cpuMillicores(value: unknown): number | undefined {
  const cores = quantity(text(value) ?? "");
  return Number.isNaN(cores) ? undefined : Math.round(cores * 1e9) / 1e6;
}
