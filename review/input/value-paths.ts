import type { Path, Values } from "./change.ts";

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Own property of a map, because a plan may have keys such as `constructor`. */
export function ownValue(map: Readonly<Record<string, unknown>>, key: string): unknown {
  return Object.hasOwn(map, key) ? map[key] : undefined;
}

/** `spec[0].template[0].metadata`, and `labels["app.kubernetes.io/name"]`. */
export function pathText(path: Path): string {
  return path
    .map((step, index) => {
      if (typeof step === "number") return `[${step}]`;
      if (!/^[\w-]+$/.test(step)) return `["${step}"]`;
      return index === 0 ? step : `.${step}`;
    })
    .join("");
}

/** Returns whether `path` is `ancestor` or below it. */
export function isWithin(path: Path, ancestor: Path): boolean {
  return (
    ancestor.length <= path.length && ancestor.every((step, i) => String(step) === String(path[i]))
  );
}

/** Paths that are `true` in `after_unknown` or `after_sensitive`. */
export function markedPaths(marks: unknown): readonly Path[] {
  const found: Path[] = [];
  const walk = (mark: unknown, path: Path) => {
    if (mark === true) found.push(path);
    else if (Array.isArray(mark)) {
      for (const [index, item] of mark.entries()) walk(item, [...path, index]);
    } else if (isObject(mark)) for (const key of Object.keys(mark)) walk(mark[key], [...path, key]);
  };
  walk(marks, []);
  return found;
}

export function textsIn(value: unknown): readonly (readonly [path: Path, text: string])[] {
  const texts: (readonly [Path, string])[] = [];
  visitTexts(value, (text, path) => texts.push([[...path], text]));
  return texts;
}

/**
 * Calls `visit` with every string in a value.
 *
 * @param visit - `path` is reused by the next call; `parent` is the list or map that contains the string.
 */
export function visitTexts(
  value: unknown,
  visit: (text: string, path: Path, parent: unknown) => void,
): void {
  const path: (string | number)[] = [];
  const walk = (inner: unknown, parent: unknown) => {
    if (typeof inner === "string") visit(inner, path, parent);
    else if (Array.isArray(inner)) {
      for (let index = 0; index < inner.length; index += 1) {
        path.push(index);
        walk(inner[index], inner);
        path.pop();
      }
    } else if (isObject(inner)) {
      for (const key of Object.keys(inner)) {
        path.push(key);
        walk(inner[key], inner);
        path.pop();
      }
    }
  };
  walk(value, undefined);
}

/** Values without parts, with their paths; by default those with content. */
export function leavesOf(
  value: unknown,
  path: Path,
  counts: (value: unknown) => boolean = (it) => !hasNoContent(it),
): readonly (readonly [Path, unknown])[] {
  if (!counts(value)) return [];
  if (Array.isArray(value)) {
    return value.flatMap((item, index) => leavesOf(item, [...path, index], counts));
  }
  return isObject(value)
    ? Object.keys(value).flatMap((key) => leavesOf(value[key], [...path, key], counts))
    : [[path, value]];
}

/** JSON with sorted keys: equal values have equal texts. */
export function canonical(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  const all = value as Readonly<Record<string, unknown>>;
  const fields = Object.keys(all)
    .sort()
    .filter((key) => all[key] !== undefined)
    .map((key) => `${JSON.stringify(key)}:${canonical(all[key])}`);
  return `{${fields.join()}}`;
}

/** Returns whether a value is a form of an unset attribute; synthesized files and plans use different ones. */
export function isUnset(value: unknown): boolean {
  return (
    value === undefined ||
    value === null ||
    value === "" ||
    value === false ||
    (Array.isArray(value) && value.length === 0) ||
    (isObject(value) && Object.keys(value).length === 0)
  );
}

/** Returns whether a value is unset, zero, or a map of such values, as which providers store unset attributes. */
export function hasNoContent(value: unknown): boolean {
  const isMap = isObject(value) && Object.values(value).every(hasNoContent);
  return isMap || value === 0 || isUnset(value);
}

/** A list, or a single value as a list; empty for `null`. */
export function toList(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  return value === undefined || value === null ? [] : [value];
}

export function sameValue(left: unknown, right: unknown): boolean {
  if (left === right || (isUnset(left) && isUnset(right))) return true;
  if (typeof left !== "object" || typeof right !== "object") return false;
  return canonical(left) === canonical(right);
}

interface ComparisonOptions {
  /**
   * Whether unset, `null`, `false` and empty values are equal.
   *
   * @default "equal"
   */
  readonly unset?: "equal" | "distinct";
}

const maxPaths = 1_000;

/** Returns the deepest paths at which two values differ. Lists of different lengths differ as a whole. */
export function changedPaths(
  before: Values | undefined,
  after: Values | undefined,
  { unset = "equal" }: ComparisonOptions = {},
): readonly Path[] {
  const found: Path[] = [];
  const same =
    unset === "equal"
      ? sameValue
      : (left: unknown, right: unknown) => canonical(left) === canonical(right);
  const walk = (left: unknown, right: unknown, path: Path) => {
    if (found.length >= maxPaths || left === right) return;
    if (unset === "equal" && isUnset(left) && isUnset(right)) return;
    if (Array.isArray(left) && Array.isArray(right) && left.length === right.length) {
      for (const [index, item] of left.entries()) walk(item, right[index], [...path, index]);
    } else if (isObject(left) && isObject(right)) {
      for (const key of [...new Set([...Object.keys(left), ...Object.keys(right)])].sort()) {
        walk(ownValue(left, key), ownValue(right, key), [...path, key]);
      }
    } else if (!same(left, right)) found.push(path);
  };
  walk(before ?? {}, after ?? {}, []);
  return found;
}

/** Blocks of a value: an object in a synthesized file, a list in a plan. */
export function blocksOf(value: unknown): readonly Readonly<Record<string, unknown>>[] {
  if (Array.isArray(value)) return value.filter(isObject);
  return isObject(value) ? [value] : [];
}

/** First block at a path of names; empty if it does not exist. */
export function blockOf(
  value: unknown,
  ...names: readonly string[]
): Readonly<Record<string, unknown>> {
  return names.reduce<Readonly<Record<string, unknown>>>(
    (inner, name) => blocksOf(inner[name])[0] ?? {},
    blocksOf(value)[0] ?? {},
  );
}

/** Fields of `metadata` that Kubernetes maintains. */
export const serverManagedFields = new Set(["resource_version", "generation", "uid", "self_link"]);
