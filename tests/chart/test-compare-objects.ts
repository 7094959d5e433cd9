/** Test fixture: compares two lists of Kubernetes objects. */

interface NamedObject {
  readonly kind: string;
  readonly metadata: { readonly name?: string };
}

/**
 * Returns the sorted differences, one line each: `<kind> <name>: <path>: <left> | <right>`. The order of keys does not matter, the order
 * of lists does; a key without a value equals a missing key.
 *
 * @param expected - Intended differences: `<kind>: <path>`, where `*` stands for any index or key.
 */
export function differences(
  left: readonly NamedObject[],
  right: readonly NamedObject[],
  expected: readonly string[] = [],
): readonly string[] {
  const names = [...new Set([...left, ...right].map(nameOf))].sort();
  return names.flatMap((name) => {
    const [a, b] = [left, right].map((all) => all.find((it) => nameOf(it) === name));
    if (a === undefined || b === undefined) return [`${name}: only ${a ? "left" : "right"}`];
    const intended = expected
      .map((it) => /^(\w+): (.+)$/.exec(it))
      .filter((match) => match?.[1] === a.kind)
      .map((match) => patternOf(match?.[2] ?? ""));
    return differencesBetween("", a, b)
      .filter(({ path }) => !intended.some((pattern) => pattern.test(path)))
      .map(({ path, values }) => `${name}: ${path}: ${values.map(textOf).join(" | ")}`);
  });
}

function nameOf({ kind, metadata }: NamedObject): string {
  return `${kind} ${metadata.name ?? ""}`;
}

function patternOf(path: string): RegExp {
  const parts = path.split("*").map((part) => part.replaceAll(/[.[\]\\/]/g, "\\$&"));
  return new RegExp(`^${parts.join("[^.]+")}$`);
}

interface Difference {
  readonly path: string;
  readonly values: readonly unknown[];
}

function differencesBetween(path: string, left: unknown, right: unknown): readonly Difference[] {
  if (left === right) return [];
  // the API drops empty maps of these
  if (/(^|\.)(annotations|labels)$/.test(path) && isEmpty(left) && isEmpty(right)) return [];
  if (!isObject(left) || !isObject(right) || Array.isArray(left) !== Array.isArray(right)) {
    return [{ path, values: [left, right] }];
  }
  const keys = [...new Set([...Object.keys(left), ...Object.keys(right)])].sort();
  return keys.flatMap((key) =>
    // label names contain dots
    differencesBetween(
      path === "" ? key : `${path}.${key.replaceAll(".", "·")}`,
      left[key],
      right[key],
    ),
  );
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

function isEmpty(value: unknown): boolean {
  return value === undefined || (isObject(value) && Object.keys(value).length === 0);
}

function textOf(value: unknown): string {
  return value === undefined ? "none" : JSON.stringify(value);
}
