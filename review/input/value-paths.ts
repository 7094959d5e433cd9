import type { Path, Values } from "./change.ts";

/** Values of Terraform and the steps into them. */

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value at `path`, or nothing. */
export function valueAt(values: unknown, path: Path): unknown {
  return path.reduce<unknown>((inner, step) => {
    if (Array.isArray(inner)) return inner[Number(step)];
    return isObject(inner) && Object.hasOwn(inner, step) ? inner[step] : undefined;
  }, values);
}

/** What a map has under a key: keys of plans are called `constructor`, too. */
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

/** Whether `path` is `above` or lies in it. */
export function isWithin(path: Path, above: Path): boolean {
  return above.length <= path.length && above.every((step, i) => String(step) === String(path[i]));
}

/** Where a tree of marks, as Terraform writes `after_unknown` and `after_sensitive`, says `true`. */
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

/** Every text in a value, with its path. */
export function* textsIn(
  value: unknown,
  path: Path = [],
): Generator<readonly [path: Path, text: string]> {
  if (typeof value === "string") yield [path, value];
  else if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) yield* textsIn(item, [...path, index]);
  } else if (isObject(value)) {
    for (const key of Object.keys(value)) yield* textsIn(value[key], [...path, key]);
  }
}

/**
 * Call `visit` with every text in a value. For values by the thousand: `path` is one list that goes on changing, copy it.
 *
 * @param visit - `above` is the list or map that the text is in.
 */
export function visitTexts(
  value: unknown,
  visit: (text: string, path: Path, above: unknown) => void,
): void {
  const path: (string | number)[] = [];
  const walk = (inner: unknown, above: unknown) => {
    if (typeof inner === "string") visit(inner, path, above);
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

/** A value as JSON, whatever the order of its keys: equal texts are equal values. */
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

/** What an absent value is written as, one way in a tree and another in a plan. */
function isUnset(value: unknown): boolean {
  return (
    value === undefined ||
    value === null ||
    value === "" ||
    value === false ||
    (Array.isArray(value) && value.length === 0) ||
    (isObject(value) && Object.keys(value).length === 0)
  );
}

export function sameValue(left: unknown, right: unknown): boolean {
  if (left === right || (isUnset(left) && isUnset(right))) return true;
  if (typeof left !== "object" || typeof right !== "object") return false;
  return canonical(left) === canonical(right);
}

interface ComparisonOptions {
  /**
   * `given`: what is absent is none of what it is written as; `null` of `must_run` is not `false` of it.
   *
   * @default "set" - `null`, `false` and what is empty are all the same nothing
   */
  readonly as?: "set" | "given";
}

/** Most places that are worth to be named. */
const maxPaths = 1_000;

/** The innermost places where two values differ, at most a thousand of them. Lists of another length differ as a whole. */
export function changedPaths(
  before: Values | undefined,
  after: Values | undefined,
  { as = "set" }: ComparisonOptions = {},
): readonly Path[] {
  const found: Path[] = [];
  const same =
    as === "set"
      ? sameValue
      : (left: unknown, right: unknown) => canonical(left) === canonical(right);
  const walk = (left: unknown, right: unknown, path: Path) => {
    if (found.length >= maxPaths || left === right) return;
    if (as === "set" && isUnset(left) && isUnset(right)) return;
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

/** A block, which a tree has as an object and a plan as a list of one. */
export function blocksOf(value: unknown): readonly Readonly<Record<string, unknown>>[] {
  if (Array.isArray(value)) return value.filter(isObject);
  return isObject(value) ? [value] : [];
}

/** The one block of its name, or an empty one. */
export function blockOf(
  value: unknown,
  ...names: readonly string[]
): Readonly<Record<string, unknown>> {
  return names.reduce<Readonly<Record<string, unknown>>>(
    (inner, name) => blocksOf(inner[name])[0] ?? {},
    blocksOf(value)[0] ?? {},
  );
}

/** What Kubernetes counts and names itself in the `metadata` of an object. */
export const serverManagedFields = new Set(["resource_version", "generation", "uid", "self_link"]);
