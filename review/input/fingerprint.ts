import { createHash } from "node:crypto";
import type { ResourceChange, StackChange } from "./change.ts";
import { PathSet } from "./path-set.ts";
import { mask } from "./secrets.ts";
import { few } from "./stack-facts.ts";
import { canonical, changedPaths, pathText } from "./value-paths.ts";

/**
 * SHA-256 of a stack's planned changes, without secrets because it is published. Plans that differ only in a secret's value have the
 * same fingerprint; {@link planDifferences} detects those too.
 */
export function fingerprintOf(change: StackChange): string {
  const resources = changedResources(change).map((it) => [
    ...identityOf(it),
    mask(it.before ?? {}, it.sensitive),
    mask(it.after ?? {}, it.sensitive),
    it.unknown,
  ]);
  const drift = change.drift.map((it) => [...identityOf(it), mask(it.after ?? {}, it.sensitive)]);
  const { plan } = change;
  const parts = partNames.flatMap((name) => {
    const part = plan?.[name];
    const masked = part === undefined ? {} : mask(part.values, part.sensitive);
    // omitted if empty, so that existing fingerprints stay valid
    return name === "actions" && Object.keys(masked).length === 0 ? [] : [masked];
  });
  return createHash("sha256")
    .update(canonical([change.stack, resources, drift, parts, plan?.failedChecks ?? []]))
    .digest("hex");
}

const partNames = ["outputs", "variables", "providers", "provisioners", "actions"] as const;

/** Resources with an action, including data sources that are read during the apply and may run programs. */
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
      : [
          `${stack}: the new plan defers changes of ${few(plan.deferred.map(({ address }) => address))}`,
        ]),
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
    const [old, current] = [reviewed, fresh].map((all) => all.find(({ stack }) => stack === name));
    if (old === undefined) return [`${name}: was not reviewed`];
    if (current === undefined) return [`${name}: was reviewed but has no new plan`];
    return stackDifferences(old, current).map((line) => `${name}: ${line}`);
  });
}

const strictly = { unset: "distinct" } as const;

function stackDifferences(reviewed: StackChange, fresh: StackChange): readonly string[] {
  const parts = partNames.flatMap((name) => {
    const [old, current] = [reviewed, fresh].map((change) => change.plan?.[name].values ?? {});
    const names = changedPaths(old, current, strictly).map(([first = ""]) => String(first));
    return [...new Set(names)].map((it) => `${name}: ${it} differs`);
  });
  const checks = (fresh.plan?.failedChecks ?? [])
    .filter((it) => !reviewed.plan?.failedChecks.includes(it))
    .map((it) => `check ${it} fails`);
  const drift = fresh.drift
    .filter((it) => {
      const old = reviewed.drift.find((other) => keyOf(other) === keyOf(it));
      return (
        old === undefined ||
        old.action !== it.action ||
        canonical(old.after) !== canonical(it.after)
      );
    })
    .map((it) => `${keyOf(it)}: has changed outside of Terraform since the review`);
  return [...resourceDifferences(reviewed, fresh), ...parts, ...checks, ...drift];
}

function resourceDifferences(reviewed: StackChange, fresh: StackChange): readonly string[] {
  const byKey = (change: StackChange) =>
    new Map(changedResources(change).map((it) => [keyOf(it), it]));
  const [before, after] = [byKey(reviewed), byKey(fresh)];
  return [...new Set([...before.keys(), ...after.keys()])].sort().flatMap((address) => {
    const [old, now] = [before.get(address), after.get(address)];
    if (old === undefined) return [`${address}: ${now?.action} is not in the reviewed plan`];
    if (now === undefined) return [`${address}: ${old.action} is not in the new plan`];
    if (old.action !== now.action) {
      return [`${address}: the reviewed action is ${old.action}, the new plan's is ${now.action}`];
    }
    const unknown = [new PathSet(old.unknown), new PathSet(now.unknown)] as const;
    const paths = [
      ...changedPaths(old.before, now.before, strictly),
      ...changedPaths(old.after, now.after, strictly),
      ...[...old.unknown, ...now.unknown].filter(
        (path) => unknown[0].covers(path) !== unknown[1].covers(path),
      ),
    ];
    const names = [...new Set(paths.map((path) => pathText(path.slice(0, 3))))].slice(0, 5);
    if (names.length > 0) return [`${address}: different value at ${names.join(", ")}`];
    return canonical(identityOf(old)) === canonical(identityOf(now))
      ? []
      : [`${address}: different cause of replacement, or different order of actions`];
  });
}
