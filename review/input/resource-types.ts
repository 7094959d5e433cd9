import type { Path, Values } from "./change.ts";
import table from "./resource-types.json" with { type: "json" };
import { isObject } from "./value-paths.ts";

/**
 * What the review knows about resource types, in `resource-types.json`. A type in `types` is examined for impact, exposure, capacity and
 * cost; its `attributes` are those that the review understands, with the format of their values, and otherwise only `metadata`.
 * `replacedFor` lists the attributes that make a provider replace a resource, `replacedExceptFor` those that do not.
 * `terraform providers schema` does not list these; they are from the sources of the versions in `providers` (attributes with `ForceNew`,
 * RequiresReplace in helm) and of Terraform 1.11. `replacements.integ.test.ts` compares them with the installed docker provider.
 */
interface TypeFacts {
  readonly attributes?: readonly AttributeRow[];
  /** Attributes without indices, separated by spaces; `identity` stands for the name and namespace of an object. */
  readonly replacedFor?: string;
  readonly replacedExceptFor?: string;
}

/**
 * Format and attributes, separated by spaces and without list indices; or rows of a part; or rows of a part below a block. `*` stands for
 * any map key, `**` for everything below.
 */
type AttributeRow = readonly string[] | string | Readonly<Record<string, string>>;

const parts = table.parts as unknown as Readonly<Record<string, readonly AttributeRow[]>>;
const examined: Readonly<Record<string, TypeFacts>> = table.types;
const all: Readonly<Record<string, TypeFacts>> = { ...table.unexamined, ...examined };

export type ExaminedType = keyof typeof table.types;

export function isExaminedType(base: string): base is ExaminedType {
  return Object.hasOwn(examined, base);
}

/** Type without API version: `kubernetes_deployment` for `kubernetes_deployment_v1`. */
export function baseType(type: string): string {
  return type.replace(/_v\d\w*$/, "").replace(/_daemonset$/, "_daemon_set");
}

function factsOf(base: string): TypeFacts | undefined {
  return Object.hasOwn(all, base) ? all[base] : undefined;
}

const identity = ["metadata.name", "metadata.namespace", "metadata.generate_name"];

/** Changed paths that make the provider replace the resource. */
export function forcingPaths(type: string, changed: readonly Path[]): readonly Path[] {
  const base = baseType(type);
  const { replacedFor, replacedExceptFor } = factsOf(base) ?? {};
  const isKubernetes = base.startsWith("kubernetes_");
  const listed = replacedFor ?? replacedExceptFor ?? (isKubernetes ? "identity" : undefined);
  if (listed === undefined) return [];
  const names = listed.split(" ").flatMap((name) => (name === "identity" ? identity : [name]));
  return changed.filter((path) => {
    const attribute = path.filter((step) => typeof step === "string").join(".");
    const isListed = names.some((it) => attribute === it || attribute.startsWith(`${it}.`));
    return isListed === (replacedExceptFor === undefined);
  });
}

/** Format of values that the review understands. */
export type Format = "text" | "number" | "flag" | RegExp;
type AttributeFormat = readonly [attribute: RegExp, format: Format];

const formatsByType = new Map<string, readonly AttributeFormat[]>();

/** Formats of values of an attribute that the review understands; none for an unknown attribute. */
export function formatsOf(type: string, attribute: string): readonly Format[] {
  const base = baseType(type);
  let formats = formatsByType.get(base);
  if (formats === undefined) {
    formats = compiled(factsOf(base)?.attributes ?? ["metadata"], "");
    formatsByType.set(base, formats);
  }
  return formats.flatMap(([pattern, format]) => (pattern.test(attribute) ? [format] : []));
}

function compiled(rows: readonly AttributeRow[], prefix: string): readonly AttributeFormat[] {
  return rows.flatMap((row): readonly AttributeFormat[] => {
    if (typeof row === "string") return compiled(parts[row] ?? [], prefix);
    if (!Array.isArray(row)) {
      return Object.entries(row).flatMap(([block, part]) =>
        compiled(parts[part] ?? [], `${prefix}${block}.`),
      );
    }
    const [word = "", names = ""] = row as readonly string[];
    const format = /^(text|number|flag)$/.test(word) ? (word as Format) : new RegExp(word);
    return names.split(" ").map((name) => [patternOf(`${prefix}${name}`), format]);
  });
}

function patternOf(name: string): RegExp {
  const source = name
    .replaceAll(/[.+?^${}()|[\]\\]/g, String.raw`\$&`)
    .replace(/\*\*$/, "\u0000")
    .replaceAll("*", name.includes("*.") ? "[^.]+" : ".+")
    .replace("\u0000", ".+");
  return new RegExp(`^${source}$`);
}

interface TypedResource {
  readonly type: string;
  readonly values: Values;
}

/** Converts a `kubernetes_manifest` of an examined kind to that kind's typed resource; returns others unchanged. */
export function asTyped(type: string, values: Values): TypedResource {
  if (type !== "kubernetes_manifest" || !isObject(values.manifest)) return { type, values };
  const kind = `kubernetes_${snakeCase(String(values.manifest.kind))}`;
  if (!isExaminedType(kind)) return { type, values };
  return { type: kind, values: asBlocks(values.manifest) as Values };
}

/** Provider's names of Kubernetes lists. */
const blockNames: Readonly<Record<string, string>> = {
  containers: "container",
  init_containers: "init_container",
  volumes: "volume",
  ports: "port",
  rules: "rule",
  subjects: "subject",
};

/** Maps with user-defined keys. */
const userMaps = new Set(
  "labels annotations matchLabels limits requests data stringData nodeSelector".split(" "),
);

function asBlocks(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(asBlocks);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => {
      const name = snakeCase(key);
      return [blockNames[name] ?? name, userMaps.has(key) ? inner : asBlocks(inner)];
    }),
  );
}

function snakeCase(name: string): string {
  return name.replaceAll(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase();
}
