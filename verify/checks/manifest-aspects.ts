import { isObject } from "../../artefact/terraform-manifests.ts";
import { quantity } from "../../contract/quantity.ts";
import type { Aspect } from "./aspect.ts";

/** Keys that identify the items of a list, whose order is then ignored. */
const keys = ["mountPath", "name", "containerPort", "port", "key", "type"] as const;

/** Lists that must not have undeclared items, because these change what a pod runs, mounts or accepts. */
const closedLists = new Set([
  "containers",
  "initContainers",
  "volumes",
  "volumeMounts",
  "volumeDevices",
  "env",
  "envFrom",
  "ports",
  "tolerations",
  "ingress",
  "egress",
  "imagePullSecrets",
]);

/** Privileges that must not be set undeclared. */
const privileges = new Set([
  "hostNetwork",
  "hostPID",
  "hostIPC",
  "hostPort",
  "privileged",
  "hostPath",
  "add",
]);

/** Overrides of the image's program; the API server adds none. */
const programs = new Set(["command", "args"]);

/** Booleans that do not default to false. For others the API server may omit `false`. */
const explicitBooleans = new Set([
  "automountServiceAccountToken",
  "enableServiceLinks",
  "allowPrivilegeEscalation",
]);

/** Fields that identify the object, and need no comparison. */
const identityFields = new Set(["apiVersion", "kind"]);
const metadataFields = new Set(["labels", "annotations"]);

/**
 * Compares everything that a manifest declares with the object in the cluster, and finds undeclared privileges, programs,
 * containers, mounts, ports, variables and network policy rules. Defaults of the API server are ignored.
 */
export function manifestAspects(declared: unknown, found: unknown): readonly Aspect[] {
  const object = isObject(declared) ? withPolicyTypes(declared) : {};
  return Object.entries(object)
    .filter(([key]) => !identityFields.has(key))
    .flatMap(([key, value]) => {
      const actual = isObject(found) ? found[key] : undefined;
      const location = { path: [key], isPolicy: object.kind === "NetworkPolicy" && key === "spec" };
      if (key !== "metadata") return compare(location, value, actual);
      return Object.entries(isObject(value) ? value : {})
        .filter(([name]) => metadataFields.has(name))
        .flatMap(([name, map]) =>
          compare({ ...location, path: [name] }, map, isObject(actual) ? actual[name] : undefined),
        );
    });
}

type Path = readonly string[];

interface Location {
  readonly path: Path;
  /** Whether this is inside the `spec` of a NetworkPolicy, to which the API server adds only defaults. */
  readonly isPolicy: boolean;
}

function inside(location: Location, key: string): Location {
  return { ...location, path: [...location.path, key] };
}

/** Adds the default `policyTypes` of the API server to a NetworkPolicy without any. */
function withPolicyTypes(object: Readonly<Record<string, unknown>>): typeof object {
  const { kind, spec } = object;
  if (kind !== "NetworkPolicy" || !isObject(spec) || !isUndeclared(spec.policyTypes)) return object;
  const policyTypes = isUndeclared(spec.egress) ? ["Ingress"] : ["Ingress", "Egress"];
  return { ...object, spec: { ...spec, policyTypes } };
}

function isClosed({ path, isPolicy }: Location, key: string, found: unknown): boolean {
  if (isPolicy) return key !== "protocol"; // which the API server sets to TCP
  if (privileges.has(key)) return true;
  // the API server adds a token and tolerations to pods, but nothing to pod templates
  const isInTemplate = path.includes("template");
  return isInTemplate && Array.isArray(found) && (closedLists.has(key) || programs.has(key));
}

function compare(location: Location, declared: unknown, found: unknown): readonly Aspect[] {
  if (isUndeclared(declared)) return [];
  if (Array.isArray(declared)) {
    return declared.every(isObject)
      ? compareItems(location, declared, found)
      : compareScalars(location.path, declared, found);
  }
  if (isObject(declared)) {
    const actual = isObject(found) ? found : {};
    const added = Object.entries(actual)
      .filter(
        ([key, value]) =>
          isUndeclared(declared[key]) && !isEmpty(value) && isClosed(location, key, value),
      )
      .flatMap(([key, value]) =>
        Array.isArray(value) && value.every(isObject)
          ? compareItems(inside(location, key), [], value)
          : [aspect([...location.path, key], "not set", text(value))],
      );
    return [
      ...Object.entries(declared).flatMap(([key, value]) =>
        compare(inside(location, key), value, actual[key]),
      ),
      ...added,
    ];
  }
  return [scalar(location.path, declared, found)];
}

function compareItems(
  location: Location,
  declared: readonly object[],
  found: unknown,
): readonly Aspect[] {
  const { path, isPolicy } = location;
  const items: readonly unknown[] = Array.isArray(found) ? found : [];
  const named = declared.length > 0 ? declared : items.filter(isObject);
  const key = keys.find((name) => named.length > 0 && named.every((item) => name in item));
  const names = namesOf(declared, key);
  const actual = new Map(namesOf(items, key).map((name, index) => [name, items[index]]));
  const extra =
    isPolicy || closedLists.has(path.at(-1) ?? "")
      ? [...actual.keys()].filter((name) => !names.includes(name))
      : [];
  return [
    ...declared.flatMap((item, index) => {
      const name = names[index] ?? "";
      return actual.has(name)
        ? compare(inside(location, name), item, actual.get(name))
        : [aspect([...path, name], "present", "missing")];
    }),
    ...extra.map((name) => aspect([...path, name], "absent", "present")),
  ];
}

/** Names the items; repeated names are numbered. */
function namesOf(items: readonly unknown[], key: string | undefined): readonly string[] {
  const seen = new Map<string, number>();
  return items.map((item, index) => {
    if (key === undefined || !isObject(item)) return String(index);
    // TCP and UDP ports are distinct
    const protocol =
      item.protocol === undefined || item.protocol === "TCP" ? "" : `/${item.protocol}`;
    const name = `${String(item[key] ?? `(no ${key})`)}${protocol}`;
    const count = (seen.get(name) ?? 0) + 1;
    seen.set(name, count);
    return count === 1 ? name : `${name} (${count})`;
  });
}

function compareScalars(
  path: Path,
  declared: readonly unknown[],
  found: unknown,
): readonly Aspect[] {
  return [aspect(path, text(declared), found === undefined ? "not set" : text(found))];
}

function scalar(path: Path, declared: unknown, found: unknown): Aspect {
  // values of environment variables may be secrets
  const isValue = path.at(-1) === "value" && path.at(-3) === "env";
  const isDecision = explicitBooleans.has(path.at(-1) ?? "") && found === undefined;
  if (!isDecision && isSame(declared, found)) return aspect(path, text(declared), text(declared));
  const is = isEmpty(found) ? "not set" : isValue ? "another value" : text(found);
  return aspect(path, text(declared), is);
}

function isSame(declared: unknown, found: unknown): boolean {
  if (declared === found || (isEmpty(declared) && isEmpty(found))) return true;
  // quantities have several notations: 1000m is 1
  const [a, b] = [quantity(String(declared)), quantity(String(found))];
  return !Number.isNaN(a) && a === b;
}

/** Returns whether a manifest does not declare a value. */
function isUndeclared(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.length === 0);
}

/** Returns whether a value is empty; the API server omits empty values. */
function isEmpty(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return value === undefined || value === null || value === false || value === "" || value === 0;
}

function aspect(path: Path, declared: string, found: string): Aspect {
  // prefix of nearly all paths of a Deployment
  const name = path.join(".").replace(/^spec\.(?:template\.spec\.)?/, "");
  return { name, declared, found };
}

function text(value: unknown): string {
  if (Array.isArray(value)) return value.map(text).join(" ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
