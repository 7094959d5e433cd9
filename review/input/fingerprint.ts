import { createHash } from "node:crypto";
import type { ResourceChange, StackChange } from "./change.ts";
import { mask } from "./secrets.ts";
import { canonical, changedPaths, isWithin, pathText } from "./value-paths.ts";

/** Comparison of plans. */

/**
 * SHA-256 of a stack's planned changes, without secrets because it is published. Plans that differ only in a secret's value have the
 * same fingerprint; {@link planDifferences} detects those too.
 */
export function fingerprintOf(change: StackChange): string {
  const own = changedResources(change).map((it) => [
    ...identityOf(it),
    mask(it.before ?? {}, it.sensitive),
    mask(it.after ?? {}, it.sensitive),
    it.unknown,
  ]);
  const outside = change.drift.map((it) => [...identityOf(it), mask(it.after ?? {}, it.sensitive)]);
  const { plan } = change;
  const besides = partNames.flatMap((name) => {
    const part = plan?.[name];
    const masked = part === undefined ? {} : mask(part.values, part.sensitive);
    // empty optional parts are left out, so that they do not change existing fingerprints
    return name === "actions" && Object.keys(masked).length === 0 ? [] : [masked];
  });
  return createHash("sha256")
    .update(canonical([change.stack, own, outside, besides, plan?.failedChecks ?? []]))
    .digest("hex");
}

const partNames = ["outputs", "variables", "providers", "provisioners", "actions"] as const;

/** Excludes unchanged resources; includes data sources read during the apply, which may run programs. */
function changedResources({ resources }: StackChange): readonly ResourceChange[] {
  return resources.filter(
    ({ action, movedFrom, imported }) =>
      action !== "no-op" || movedFrom !== undefined || imported === true,
  );
}

function identityOf(change: ResourceChange) {
  const { action, actions, replacePaths, movedFrom, imported } = change;
  return [
    keyOf(change),
    (actions ?? [action]).join(),
    replacePaths.map(pathText).sort(),
    movedFrom ?? "",
    imported === true,
  ];
}

function keyOf({ address, deposed }: ResourceChange): string {
  return deposed === undefined ? address : `${address} (deposed ${deposed})`;
}

/** Reasons to reject a plan regardless of the review. */
export function rejectionReasons({ stack, plan }: StackChange): readonly string[] {
  if (plan === undefined) return [];
  return [
    ...(plan.errored ? [`${stack}: planning failed`] : []),
    ...(plan.complete || plan.errored ? [] : [`${stack}: the new plan is incomplete`]),
    ...(plan.deferred.length === 0
      ? []
      : [`${stack}: the new plan defers ${plan.deferred.length} changes`]),
    ...(plan.deferredActions.length === 0
      ? []
      : [`${stack}: the new plan defers ${plan.deferredActions.join(", ")}`]),
  ];
}

/** Differences between the reviewed and the new plan, one line each, without values. */
export function planDifferences(
  reviewed: readonly StackChange[],
  fresh: readonly StackChange[],
): readonly string[] {
  const names = [...new Set([...reviewed, ...fresh].map(({ stack }) => stack))].sort();
  return names.flatMap((name) => {
    const [was, is] = [reviewed, fresh].map((all) => all.find(({ stack }) => stack === name));
    if (was === undefined) return [`${name}: was not reviewed`];
    if (is === undefined) return [`${name}: was reviewed but has no new plan`];
    return stackDifferences(was, is).map((line) => `${name}: ${line}`);
  });
}

/** Key that identifies a resource in both plans. */
const given = { as: "given" } as const;

function stackDifferences(reviewed: StackChange, fresh: StackChange): readonly string[] {
  const besides = partNames.flatMap((name) => {
    const [was, is] = [reviewed, fresh].map((change) => change.plan?.[name].values ?? {});
    const names = changedPaths(was, is, given).map(([first = ""]) => String(first));
    return [...new Set(names)].map((it) => `${name}: ${it} is another`);
  });
  const checks = (fresh.plan?.failedChecks ?? [])
    .filter((it) => !reviewed.plan?.failedChecks.includes(it))
    .map((it) => `check ${it} fails`);
  const outside = fresh.drift
    .filter((it) => {
      const old = reviewed.drift.find((other) => keyOf(other) === keyOf(it));
      return (
        old === undefined ||
        old.action !== it.action ||
        canonical(old.after) !== canonical(it.after)
      );
    })
    .map((it) => `${keyOf(it)}: has changed outside of Terraform since the review`);
  return [...resourceDifferences(reviewed, fresh), ...besides, ...checks, ...outside];
}

function resourceDifferences(reviewed: StackChange, fresh: StackChange): readonly string[] {
  const [was, is] = [reviewed, fresh].map(
    (change) => new Map(changedResources(change).map((it) => [keyOf(it), it])),
  );
  return [...new Set([...(was?.keys() ?? []), ...(is?.keys() ?? [])])].sort().flatMap((address) => {
    const [old, now] = [was?.get(address), is?.get(address)];
    if (old === undefined) return [`${address}: ${now?.action} is not in the reviewed plan`];
    if (now === undefined) return [`${address}: ${old.action} is not in the new plan`];
    if (old.action !== now.action) {
      return [`${address}: the reviewed action is ${old.action}, the new plan's is ${now.action}`];
    }
    const places = [
      ...changedPaths(old.before, now.before, given),
      ...changedPaths(old.after, now.after, given),
      ...[...old.unknown, ...now.unknown].filter(
        (path) =>
          old.unknown.some((it) => isWithin(path, it)) !==
          now.unknown.some((it) => isWithin(path, it)),
      ),
    ];
    const shown = [...new Set(places.map((path) => pathText(path.slice(0, 3))))].slice(0, 5);
    if (shown.length > 0) return [`${address}: different value at ${shown.join(", ")}`];
    return canonical(identityOf(old)) === canonical(identityOf(now))
      ? []
      : [`${address}: different cause of replacement, or different order of actions`];
  });
}
