import { quantity } from "./cluster-objects.ts";
import type { Aspect } from "./container-aspects.ts";

/** Lists whose items have a name: the order is the API server's business. */
const keys = ["name", "containerPort", "mountPath", "port", "key", "type"] as const;

/** Lists of which nobody may add an item: what a pod runs, sees and lets in. */
const closedLists = new Set([
  "containers",
  "initContainers",
  "volumes",
  "volumeMounts",
  "env",
  "envFrom",
  "ports",
  "tolerations",
  "ingress",
  "egress",
  "imagePullSecrets",
]);

/** What gives a pod more than others have, when nobody has declared it. */
const privileges = new Set(["hostNetwork", "hostPID", "hostIPC", "privileged", "hostPath", "add"]);

/** What is not false where nobody says so, or not known to be. Elsewhere the API server leaves out a `false`. */
const decisions = new Set([
  "automountServiceAccountToken",
  "enableServiceLinks",
  "allowPrivilegeEscalation",
]);

/** Of the declared metadata, what the object is called is how it was found. */
const ownFields = new Set(["apiVersion", "kind"]);
const metadataFields = new Set(["labels", "annotations"]);

/**
 * Everything that a manifest declares, beside what the cluster has, and privileges, containers, mounts, ports and
 * variables that nobody has declared. Defaults that the API server adds say nothing.
 */
export function manifestAspects(declared: unknown, found: unknown): readonly Aspect[] {
  const object = isObject(declared) ? declared : {};
  return Object.entries(object)
    .filter(([key]) => !ownFields.has(key))
    .flatMap(([key, value]) => {
      const there = isObject(found) ? found[key] : undefined;
      if (key !== "metadata") return compare([key], value, there);
      return Object.entries(isObject(value) ? value : {})
        .filter(([name]) => metadataFields.has(name))
        .flatMap(([name, map]) => compare([name], map, isObject(there) ? there[name] : undefined));
    });
}

type Path = readonly string[];

function compare(path: Path, declared: unknown, found: unknown): readonly Aspect[] {
  if (declared === undefined || declared === null) return [];
  if (Array.isArray(declared)) {
    return declared.every(isObject)
      ? compareItems(path, declared, found)
      : compareScalars(path, declared, found);
  }
  if (isObject(declared)) {
    const there = isObject(found) ? found : {};
    const added = Object.entries(there)
      .filter(([key, value]) => privileges.has(key) && !(key in declared) && !isNothing(value))
      .map(([key, value]) => aspect([...path, key], "not set", text(value)));
    return [
      ...Object.entries(declared).flatMap(([key, value]) =>
        compare([...path, key], value, there[key]),
      ),
      ...added,
    ];
  }
  return [scalar(path, declared, found)];
}

/** Items by their name, or by their place where they have none. */
function compareItems(path: Path, declared: readonly object[], found: unknown): readonly Aspect[] {
  const items: readonly unknown[] = Array.isArray(found) ? found : [];
  const key = keys.find((name) => declared.length > 0 && declared.every((item) => name in item));
  const nameOf = (item: unknown, index: number): string => {
    if (key === undefined || !isObject(item)) return String(index);
    // TCP and UDP have ports of their own
    const protocol =
      item.protocol === undefined || item.protocol === "TCP" ? "" : `/${item.protocol}`;
    return `${String(item[key])}${protocol}`;
  };
  const names = new Set(declared.map(nameOf));
  const extra = closedLists.has(path.at(-1) ?? "")
    ? items.map(nameOf).filter((name) => !names.has(name))
    : [];
  return [
    ...declared.flatMap((item, index) => {
      const name = nameOf(item, index);
      const there = items.find((one, i) => nameOf(one, i) === name);
      return there === undefined
        ? [aspect([...path, name], "there", "not there")]
        : compare([...path, name], item, there);
    }),
    ...extra.map((name) => aspect([...path, name], "not there", "there")),
  ];
}

function compareScalars(
  path: Path,
  declared: readonly unknown[],
  found: unknown,
): readonly Aspect[] {
  return [aspect(path, text(declared), found === undefined ? "not set" : text(found))];
}

function scalar(path: Path, declared: unknown, found: unknown): Aspect {
  // what an environment variable has may be a secret of somebody else
  const isValue = path.at(-1) === "value" && path.at(-3) === "env";
  const isDecision = decisions.has(path.at(-1) ?? "") && found === undefined;
  if (!isDecision && isSame(declared, found)) return aspect(path, text(declared), text(declared));
  const is = isNothing(found) ? "not set" : isValue ? "another value" : text(found);
  return aspect(path, text(declared), is);
}

function isSame(declared: unknown, found: unknown): boolean {
  if (declared === found || (isNothing(declared) && isNothing(found))) return true;
  // 1000m is written 1: the same quantity, as another text
  const [a, b] = [quantity(String(declared)), quantity(String(found))];
  return !Number.isNaN(a) && a === b;
}

/** The API server leaves out what is empty. */
function isNothing(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return value === undefined || value === null || value === false || value === "" || value === 0;
}

function aspect(path: Path, declared: string, found: string): Aspect {
  // `spec.template.spec` is on every line of a Deployment
  const name = path.join(".").replace(/^spec\.(?:template\.spec\.)?/, "");
  return { name, declared, found };
}

function text(value: unknown): string {
  if (Array.isArray(value)) return value.map(text).join(" ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
