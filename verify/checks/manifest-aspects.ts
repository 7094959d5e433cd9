import { isObject } from "../../artefact/terraform-manifests.ts";
import { quantity } from "../../contract/quantity.ts";
import type { Aspect } from "./container-aspects.ts";

/** Lists whose items have a name: the order is the API server's business. */
const keys = ["mountPath", "name", "containerPort", "port", "key", "type"] as const;

/** Lists of which nobody may add an item: what a pod runs, sees and lets in. */
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

/** What gives a pod more than others have, when nobody has declared it. */
const privileges = new Set([
  "hostNetwork",
  "hostPID",
  "hostIPC",
  "hostPort",
  "privileged",
  "hostPath",
  "add",
]);

/** What a container runs in place of what its image says. The API server adds none. */
const programs = new Set(["command", "args"]);

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
 * Everything that a manifest declares, beside what the cluster has, and privileges, programs, containers, mounts, ports,
 * variables and rules of a network policy that nobody has declared. Defaults that the API server adds say nothing.
 */
export function manifestAspects(declared: unknown, found: unknown): readonly Aspect[] {
  const object = isObject(declared) ? withPolicyTypes(declared) : {};
  return Object.entries(object)
    .filter(([key]) => !ownFields.has(key))
    .flatMap(([key, value]) => {
      const there = isObject(found) ? found[key] : undefined;
      const place = { path: [key], isPolicy: object.kind === "NetworkPolicy" && key === "spec" };
      if (key !== "metadata") return compare(place, value, there);
      return Object.entries(isObject(value) ? value : {})
        .filter(([name]) => metadataFields.has(name))
        .flatMap(([name, map]) =>
          compare({ ...place, path: [name] }, map, isObject(there) ? there[name] : undefined),
        );
    });
}

type Path = readonly string[];

interface Place {
  readonly path: Path;
  /** In the `spec` of a network policy, to which the API server adds no more than defaults. */
  readonly isPolicy: boolean;
}

function inside(place: Place, key: string): Place {
  return { ...place, path: [...place.path, key] };
}

/** A network policy with the types that the API server gives one that names none. */
function withPolicyTypes(object: Readonly<Record<string, unknown>>): typeof object {
  const { kind, spec } = object;
  if (kind !== "NetworkPolicy" || !isObject(spec) || !isLeftOut(spec.policyTypes)) return object;
  const policyTypes = isLeftOut(spec.egress) ? ["Ingress"] : ["Ingress", "Egress"];
  return { ...object, spec: { ...spec, policyTypes } };
}

/** Whether nobody may set a field that is not declared. */
function isClosed({ path, isPolicy }: Place, key: string, found: unknown): boolean {
  if (isPolicy) return key !== "protocol"; // which the API server sets to TCP
  if (privileges.has(key)) return true;
  // to a pod it adds a token and tolerations, to the template of one nothing
  const isInTemplate = path.includes("template");
  return isInTemplate && Array.isArray(found) && (closedLists.has(key) || programs.has(key));
}

function compare(place: Place, declared: unknown, found: unknown): readonly Aspect[] {
  if (isLeftOut(declared)) return [];
  if (Array.isArray(declared)) {
    return declared.every(isObject)
      ? compareItems(place, declared, found)
      : compareScalars(place.path, declared, found);
  }
  if (isObject(declared)) {
    const there = isObject(found) ? found : {};
    const added = Object.entries(there)
      .filter(
        ([key, value]) =>
          isLeftOut(declared[key]) && !isNothing(value) && isClosed(place, key, value),
      )
      .flatMap(([key, value]) =>
        Array.isArray(value) && value.every(isObject)
          ? compareItems(inside(place, key), [], value)
          : [aspect([...place.path, key], "not set", text(value))],
      );
    return [
      ...Object.entries(declared).flatMap(([key, value]) =>
        compare(inside(place, key), value, there[key]),
      ),
      ...added,
    ];
  }
  return [scalar(place.path, declared, found)];
}

/** Items by their name, or by their place where they have none. */
function compareItems(
  place: Place,
  declared: readonly object[],
  found: unknown,
): readonly Aspect[] {
  const { path, isPolicy } = place;
  const items: readonly unknown[] = Array.isArray(found) ? found : [];
  const named = declared.length > 0 ? declared : items.filter(isObject);
  const key = keys.find((name) => named.length > 0 && named.every((item) => name in item));
  const names = namesOf(declared, key);
  const there = new Map(namesOf(items, key).map((name, index) => [name, items[index]]));
  const extra =
    isPolicy || closedLists.has(path.at(-1) ?? "")
      ? [...there.keys()].filter((name) => !names.includes(name))
      : [];
  return [
    ...declared.flatMap((item, index) => {
      const name = names[index] ?? "";
      return there.has(name)
        ? compare(inside(place, name), item, there.get(name))
        : [aspect([...path, name], "there", "not there")];
    }),
    ...extra.map((name) => aspect([...path, name], "not there", "there")),
  ];
}

/** A name for each item. Of variables of one name, the last one counts: the second is another item. */
function namesOf(items: readonly unknown[], key: string | undefined): readonly string[] {
  const seen = new Map<string, number>();
  return items.map((item, index) => {
    if (key === undefined || !isObject(item)) return String(index);
    // TCP and UDP have ports of their own
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

/** What a manifest says nothing of. */
function isLeftOut(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.length === 0);
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
