import { isObject, ownValue } from "../input/value-paths.ts";
import { short, textOf } from "./diff-texts.ts";

/** Fields that identify list items, in order of preference. */
const itemNames = [
  ...["name", "label", "key", "file", "container_path", "target", "mount_path", "host"],
  ...["container_port", "type", "source", "topology_key", "what", "image", "port", "service"],
] as const;

export function fieldOf(item: unknown, name: string): unknown {
  return isObject(item) ? ownValue(item, name) : undefined;
}

/** Field that identifies every item uniquely and is not secret in any of them. */
export function namingField(
  before: readonly unknown[],
  after: readonly unknown[],
  isSecret: (index: number, field: string, list: readonly unknown[]) => boolean,
): ItemName | undefined {
  const items = [...before, ...after];
  if (items.length === 0 || !items.every(isObject)) return undefined;
  const isOpen = (field: string) =>
    [before, after].every((list) => list.every((_, index) => !isSecret(index, field, list)));
  if (
    items.every((item) => "internal" in (item as object)) &&
    isOpen("internal") &&
    isOpen("protocol")
  ) {
    return (item) =>
      short(`${textOf(fieldOf(item, "internal"))}/${textOf(fieldOf(item, "protocol")) || "tcp"}`);
  }
  const isNamed = (item: unknown, field: string) =>
    ["string", "number"].includes(typeof fieldOf(item, field)) && fieldOf(item, field) !== "";
  const isUnique = (list: readonly unknown[], field: string) =>
    new Set(list.map((item) => fieldOf(item, field))).size === list.length;
  const name = itemNames.find(
    (field) =>
      items.every((item) => isNamed(item, field)) &&
      isUnique(before, field) &&
      isUnique(after, field) &&
      isOpen(field),
  );
  if (name === undefined) return undefined;
  return (item) => short(String(fieldOf(item, name)));
}

type ItemName = (item: unknown) => string;
export type NamedItems = ReadonlyMap<string, { readonly item: unknown; readonly index: number }>;

export function byName(items: readonly unknown[], name: ItemName): NamedItems {
  const found = new Map<string, { readonly item: unknown; readonly index: number }>();
  items.forEach((item, index) => {
    let key = name(item);
    while (found.has(key)) key = `${key}'`;
    found.set(key, { item, index });
  });
  return found;
}
