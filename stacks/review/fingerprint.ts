import { createHash } from "node:crypto";
import type { ResourceChange, StackChange } from "./change.ts";
import { mask } from "./secrets.ts";
import { canonical, changedPaths, isWithin, pathText } from "./value-paths.ts";

/** Whether two plans do the same. */

/**
 * SHA-256 of what a stack's plan does. Secrets are not in it, since it may be published: two plans with it may differ in a secret's
 * value. {@link planDifferences} compares those too.
 */
export function fingerprintOf(change: StackChange): string {
  const own = acting(change).map((it) => [
    ...identityOf(it),
    mask(it.before ?? {}, it.sensitive),
    mask(it.after ?? {}, it.sensitive),
    it.unknown,
  ]);
  return createHash("sha256")
    .update(canonical([change.stack, own]))
    .digest("hex");
}

function acting({ resources }: StackChange): readonly ResourceChange[] {
  return resources.filter(
    ({ action, movedFrom, imported }) =>
      (action !== "no-op" && action !== "read") || movedFrom !== undefined || imported === true,
  );
}

function identityOf({ address, action, replacePaths, movedFrom, imported }: ResourceChange) {
  return [address, action, replacePaths.map(pathText).sort(), movedFrom ?? "", imported === true];
}

/** What a fresh plan does that the reviewed one does not, and the other way round: one line each, no values. */
export function planDifferences(
  reviewed: readonly StackChange[],
  fresh: readonly StackChange[],
): readonly string[] {
  const names = [...new Set([...reviewed, ...fresh].map(({ stack }) => stack))].sort();
  return names.flatMap((name) => {
    const [was, is] = [reviewed, fresh].map((all) => all.find(({ stack }) => stack === name));
    if (was === undefined) return [`${name}: was not reviewed`];
    if (is === undefined) return [`${name}: was reviewed, and has no fresh plan`];
    return stackDifferences(was, is).map((line) => `${name}: ${line}`);
  });
}

function stackDifferences(reviewed: StackChange, fresh: StackChange): readonly string[] {
  const [was, is] = [reviewed, fresh].map(
    (change) => new Map(acting(change).map((it) => [it.address, it])),
  );
  return [...new Set([...(was?.keys() ?? []), ...(is?.keys() ?? [])])].sort().flatMap((address) => {
    const [old, now] = [was?.get(address), is?.get(address)];
    if (old === undefined) return [`${address}: ${now?.action} was not in the reviewed plan`];
    if (now === undefined) return [`${address}: ${old.action} is not in the fresh plan`];
    if (old.action !== now.action) {
      return [`${address}: reviewed was ${old.action}, the fresh plan says ${now.action}`];
    }
    const places = [
      ...changedPaths(old.before, now.before),
      ...changedPaths(old.after, now.after),
      ...[...old.unknown, ...now.unknown].filter(
        (path) =>
          old.unknown.some((it) => isWithin(path, it)) !==
          now.unknown.some((it) => isWithin(path, it)),
      ),
    ];
    const shown = [...new Set(places.map((path) => pathText(path.slice(0, 3))))].slice(0, 5);
    if (shown.length > 0) return [`${address}: another value at ${shown.join(", ")}`];
    return canonical(identityOf(old)) === canonical(identityOf(now))
      ? []
      : [`${address}: something else forces it`];
  });
}
