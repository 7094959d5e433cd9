/** Resources of Terraform JSON by type and id. */
export type TerraformResources = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

const reference = /\$\{([a-z0-9_]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_.[\]]+)\}/g;

/**
 * Resolves references to values in the file, such as `${docker_container.triton.name}`, also inside lists and objects.
 * Expressions that only Terraform can evaluate are kept.
 */
export function resolveText(value: unknown, resources: TerraformResources): unknown {
  return mapStrings(value, (text) =>
    text.replace(reference, (match, type: string, id: string, path: string) => {
      const keys = path.split(/[.[\]]+/).filter((key) => key !== "");
      const found = keys.reduce<unknown>(step, resources[type]?.[id]);
      return typeof found === "string" || typeof found === "number" ? String(found) : match;
    }),
  );
}

/** Copies a value and replaces every string in it. `path` contains the keys and indices of the string. */
export function mapStrings(
  value: unknown,
  replace: (text: string, path: readonly string[]) => string,
  path: readonly string[] = [],
): unknown {
  if (typeof value === "string") return replace(value, path);
  if (Array.isArray(value)) {
    return value.map((item, i) => mapStrings(item, replace, [...path, String(i)]));
  }
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, mapStrings(item, replace, [...path, key])]),
  );
}

/** Resolves one step of a path. A block may be an object although the reference has an index: `metadata.0.name`. */
function step(inner: unknown, key: string): unknown {
  if (typeof inner !== "object" || inner === null) return undefined;
  if (key === "0" && !Array.isArray(inner)) return inner;
  return Object.hasOwn(inner, key) ? (inner as Record<string, unknown>)[key] : undefined;
}

/**
 * Evaluates a path: literal, `${abspath("${path.root}/…")}` or `${path.module}/…`.
 *
 * @param moduleFolder - Folder of `cdk.tf.json`: value of `path.root` and `path.module`.
 * @returns `undefined` for other expressions.
 */
export function evaluatePath(text: string, moduleFolder: string): string | undefined {
  const path = text
    .replaceAll(/\$\{path\.(?:root|module)\}/g, moduleFolder)
    .replaceAll(/\$\{abspath\("([^"$]*)"\)\}/g, "$1");
  return path.includes("${") ? undefined : path;
}
