/** Resources of Terraform JSON: type, then id, then body. */
export type TerraformResources = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

const reference = /\$\{([a-z0-9_]+)\.([A-Za-z0-9_-]+)\.([a-z0-9_.[\]]+)\}/g;

/**
 * Replace references to what stands in the file: `${docker_container.triton.name}`, also inside lists and objects.
 * What only Terraform knows stays as it is.
 */
export function resolveText(value: unknown, resources: TerraformResources): unknown {
  return mapStrings(value, (text) =>
    text.replace(reference, (whole, type: string, id: string, path: string) => {
      const keys = path.split(/[.[\]]+/).filter((key) => key !== "");
      const found = keys.reduce<unknown>(step, resources[type]?.[id]);
      return typeof found === "string" || typeof found === "number" ? String(found) : whole;
    }),
  );
}

/** Copies a value, with every text in it changed. `path` has the keys and indices that lead to the text. */
export function mapStrings(
  value: unknown,
  change: (text: string, path: readonly string[]) => string,
  path: readonly string[] = [],
): unknown {
  if (typeof value === "string") return change(value, path);
  if (Array.isArray(value)) {
    return value.map((item, i) => mapStrings(item, change, [...path, String(i)]));
  }
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, mapStrings(item, change, [...path, key])]),
  );
}

/** One step of a path. A block may be an object where the reference counts from 0: `metadata.0.name`. */
function step(inner: unknown, key: string): unknown {
  if (typeof inner !== "object" || inner === null) return undefined;
  if (key === "0" && !Array.isArray(inner)) return inner;
  return (inner as Record<string, unknown>)[key];
}

/**
 * Value of a path expression: a plain path, or `${abspath("${path.root}/…")}` and `${path.module}/…`.
 *
 * @param moduleFolder - What `path.root` and `path.module` stand for: the folder of `cdk.tf.json`.
 * @returns `undefined` where only Terraform knows.
 */
export function evaluatePath(text: string, moduleFolder: string): string | undefined {
  const plain = text
    .replaceAll(/\$\{path\.(?:root|module)\}/g, moduleFolder)
    .replaceAll(/\$\{abspath\("([^"$]*)"\)\}/g, "$1");
  return plain.includes("${") ? undefined : plain;
}
