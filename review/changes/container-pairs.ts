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
  const paired = new Map<string, ResourceChange>();
  for (const [address, group] of groups) {
    const old = group.filter(({ action }) => action === "delete");
    const fresh = group.filter(({ action }) => action === "create");
    const [was, is] = [old[0], fresh[0]];
    // other keyed resources are independent instances
    if (group.length !== 2 || !isOneShot(was?.before) || !isOneShot(is?.after)) continue;
    if (was === undefined || is === undefined) continue;
    paired.set(address, {
      ...is,
      address,
      action: "replace",
      createBeforeDestroy: true,
      before: was.before,
      sensitive: [...was.sensitive, ...is.sensitive],
      replacePaths: [["for_each"]],
    });
  }
  return [
    ...resources.filter(
      ({ type, address, deposed }) =>
        type !== "docker_container" || deposed !== undefined || !paired.has(withoutKey(address)),
    ),
    ...paired.values(),
  ].sort((a, b) => (a.address < b.address ? -1 : 1));
}
