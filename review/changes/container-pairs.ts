import type { ResourceChange } from "../input/change.ts";
import { isOneShot, withoutKey } from "../input/stack-facts.ts";

/**
 * A one-shot container is another instance for every content: Terraform says that one is destroyed and one is made. To a reader
 * it is one thing that is replaced, as two trees have it.
 */
export function withPairs(resources: readonly ResourceChange[]): readonly ResourceChange[] {
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
    // keys of anything else are things of their own
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
