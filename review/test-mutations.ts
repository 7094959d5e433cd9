import { valueAt } from "../contract/issue-lines.ts";
import type { ResourceChange, StackChange } from "./input/change.ts";
import { baseType, forcingPaths } from "./input/resource-types.ts";
import { isObject, isUnset } from "./input/value-paths.ts";
import { plannedChange, savedChange } from "./test-plans.ts";

/** Change of one attribute of a resource in a saved plan. */
export interface Mutation {
  readonly type: string;
  /** Path without indices: `ports.ip`. */
  readonly attribute: string;
  readonly kind: MutationKind;
  readonly action: "create" | "update" | "replace";
  readonly change: StackChange;
}

export const mutationKinds = [
  "other value",
  "unknown",
  "sensitive",
  "absent",
  "other type",
] as const;
export type MutationKind = (typeof mutationKinds)[number];

type Step = string | number;
type Values = Readonly<Record<string, unknown>>;

/** Every mutation of every attribute of each resource type and each role of a container in the saved plans. */
export function* mutationsOf(): Generator<Mutation> {
  const seen = new Set<string>();
  for (const name of [
    "nothing-changed",
    "kind-local-updated",
    "k8s-gpu-updated",
    "kind-local-create",
  ]) {
    const saved = savedChange(name);
    for (const given of saved.resources) {
      const key = roleOf(given);
      if (seen.has(key) || given.mode !== "managed") continue;
      seen.add(key);
      const values = given.after ?? given.before ?? {};
      const resource = { ...given, action: "no-op" as const, before: values, after: values };
      const base = {
        ...saved,
        drift: [],
        resources: [resource],
        environmentBefore: saved.environmentAfter,
      };
      for (const path of attributePaths(values)) {
        yield* mutationsAt(base, resource, path, "change");
        yield* mutationsAt(base, resource, path, "create");
      }
    }
  }
}

function roleOf({ type, address }: ResourceChange): string {
  const [, role = ""] =
    /^docker_container\.(?:triton-onnx|triton-trt|weights)?_?([a-z-]+)/.exec(address) ?? [];
  return `${baseType(type)} ${role}`;
}

/** Leaves, and lists and blocks as a whole. */
function attributePaths(value: unknown, path: readonly Step[] = []): readonly (readonly Step[])[] {
  const below = Array.isArray(value)
    ? value.slice(0, 1).flatMap((item, index) => attributePaths(item, [...path, index]))
    : isObject(value)
      ? Object.keys(value).flatMap((key) => attributePaths(value[key], [...path, key]))
      : [];
  return [...(path.length === 0 ? [] : [path]), ...below];
}

const attributeOf = (path: readonly Step[]) =>
  path.filter((step) => typeof step === "string").join(".");

function* mutationsAt(
  base: StackChange,
  resource: ResourceChange,
  path: readonly Step[],
  action: "change" | "create",
): Generator<Mutation> {
  const before = resource.after ?? {};
  const old = valueAt(before, path);
  for (const kind of mutationKinds) {
    for (const value of valuesOf(kind, old, action)) {
      const marks = kind === "unknown" || kind === "sensitive" ? withValue({}, path, true) : {};
      const forced = forcingPaths(resource.type, [path]).length > 0;
      const does = action === "create" ? "create" : forced ? "replace" : "update";
      const actions = { create: ["create"], update: ["update"], replace: ["delete", "create"] }[
        does
      ];
      const planned = plannedChange([
        {
          address: resource.address,
          actions,
          before: does === "create" ? null : before,
          after: withValue(before, path, value),
          more: {
            ...(kind === "unknown" ? { after_unknown: marks } : {}),
            ...(kind === "sensitive" ? { after_sensitive: marks } : {}),
            ...(does === "replace" ? { replace_paths: [path] } : {}),
          },
        },
      ]).resources[0]!;
      const mutated: ResourceChange = {
        ...resource,
        ...planned,
        type: resource.type,
        name: resource.name,
      };
      yield {
        type: baseType(resource.type),
        attribute: attributeOf(path),
        kind,
        action: does,
        change: {
          ...base,
          resources: base.resources.map((it) => (it === resource ? mutated : it)),
        },
      };
    }
  }
}

function valuesOf(
  kind: MutationKind,
  old: unknown,
  action: "change" | "create",
): readonly unknown[] {
  switch (kind) {
    case "absent":
      // a new resource without a value has the default of its provider
      return isUnset(old) || action === "create" ? [] : [undefined];
    case "unknown":
      return [undefined];
    case "other type":
      return typeof old === "string" ? [{ a: 1 }] : ["other"];
    case "sensitive":
    case "other value":
      if (typeof old === "boolean") return [!old];
      if (typeof old === "number") return [old + 1];
      if (typeof old === "string") return ["other"];
      if (Array.isArray(old))
        return [[...old, typeof old[0] === "object" ? { ...old[0], other: "other" } : "other"]];
      if (isObject(old)) return [{ ...old, other: "other" }];
      return [true, 7, ["other"], [{ other: "other" }]];
  }
}

function withValue(root: unknown, [step, ...rest]: readonly Step[], value: unknown): unknown {
  if (step === undefined) return value;
  if (typeof step === "number") {
    const list = Array.isArray(root) ? [...root] : [];
    list[step] = withValue(list[step], rest, value);
    return list;
  }
  const map: Record<string, unknown> = isObject(root) ? { ...root } : {};
  map[step] = withValue(map[step], rest, value);
  return map as Values;
}
