import type { ResourceChange } from "../input/change.ts";
import { isOneShot, withoutKey } from "../input/stack-facts.ts";

/**
 * Merges the destroy and create of a one-shot container, whose `for_each` key is a hash of its content, into one replacement, as in
 * two synthesized files.
 */
export function mergeReplacements(resources: readonly ResourceChange[]): readonly ResourceChange[] {
  const groups = new Map<string, ResourceChange[]>();
  for (const resource of resources) {
    if (resource.type !== "docker_container" || resource.deposed !== undefined) continue;
    if (resource.address === withoutKey(resource.address)) continue;
    const key = withoutKey(resource.address);
    groups.set(key, [...(groups.get(key) ?? []), resource]);
  }
  const replacements = new Map<string, ResourceChange>();
  for (const [address, group] of groups) {
    const destroyed = group.filter(({ action }) => action === "delete");
    const created = group.filter(({ action }) => action === "create");
    const [oldContainer, newContainer] = [destroyed[0], created[0]];
    // other keyed resources are independent instances
    if (group.length !== 2 || !isOneShot(oldContainer?.before) || !isOneShot(newContainer?.after))
      continue;
    if (oldContainer === undefined || newContainer === undefined) continue;
    replacements.set(address, {
      ...newContainer,
      address,
      action: "replace",
      createBeforeDestroy: true,
      before: oldContainer.before,
      sensitive: [...oldContainer.sensitive, ...newContainer.sensitive],
      replacePaths: [["for_each"]],
    });
  }
  return [
    ...resources.filter(
      ({ type, address, deposed }) =>
        type !== "docker_container" ||
        deposed !== undefined ||
        !replacements.has(withoutKey(address)),
    ),
    ...replacements.values(),
  ].sort((a, b) => (a.address < b.address ? -1 : 1));
}
