import type { Action, Path, Values } from "./change.ts";
import {
  anyReference,
  type DeclaredResource,
  localReference,
  withLocals,
} from "./declared-resources.ts";
import { unique } from "./plan-resources.ts";
import { forcingPaths } from "./resource-types.ts";
import { withoutKey } from "./stack-facts.ts";
import type { SynthesizedDocument } from "./synthesized-document.ts";
import { changedPaths, textsIn } from "./value-paths.ts";

export interface ResourcePair {
  readonly address: string;
  readonly before?: DeclaredResource;
  readonly after?: DeclaredResource;
}

export interface DerivedAction {
  readonly action: Action;
  /** Paths that force a replacement. */
  readonly forcing: readonly Path[];
  /** Paths whose values are known only after the apply. */
  readonly unknown: readonly Path[];
}

/** Locals with a changed expression. */
export function changedLocals(
  before: SynthesizedDocument | undefined,
  after: SynthesizedDocument | undefined,
): ReadonlySet<string> {
  const text = (name: string, from: SynthesizedDocument | undefined) =>
    withLocals(`local.${name}`, from);
  const names = Object.keys(after?.locals ?? {});
  return new Set(names.filter((name) => text(name, before) !== text(name, after)));
}

/**
 * Derives the action on each resource, by address. Iterates to a fixed point, because replacing a resource may replace its dependents.
 *
 * @param locals - Locals with a changed value.
 */
export function derivedActions(
  pairs: readonly ResourcePair[],
  locals: ReadonlySet<string>,
): ReadonlyMap<string, DerivedAction> {
  const actions = new Map<string, DerivedAction>();
  const recreated = new Set<string>();
  const changed = new Set<string>();
  for (let isStable = false; !isStable; ) {
    isStable = true;
    for (const pair of pairs) {
      const derived = derivedAction(pair, { recreated, changed, locals });
      if (actions.get(pair.address)?.action !== derived.action) isStable = false;
      actions.set(pair.address, derived);
      // expressions reference a resource without its instance key
      if (["create", "replace"].includes(derived.action)) recreated.add(withoutKey(pair.address));
      if (derived.action !== "no-op") changed.add(withoutKey(pair.address));
    }
  }
  return actions;
}

interface ChangedReferences {
  /** Created or replaced resources. */
  readonly recreated: ReadonlySet<string>;
  /** Resources with any change. */
  readonly changed: ReadonlySet<string>;
  readonly locals: ReadonlySet<string>;
}

function derivedAction(
  { before, after }: ResourcePair,
  { recreated, changed, locals }: ChangedReferences,
): DerivedAction {
  if (after === undefined) return { action: "delete", forcing: [], unknown: [] };
  const expressions = expressionsIn(after.values);
  const unknown = expressions.map(({ path }) => path);
  if (before === undefined) {
    return { action: after.mode === "data" ? "read" : "create", forcing: [], unknown };
  }
  if (after.mode === "data") return { action: "no-op", forcing: [], unknown };
  const recomputed = expressions
    .filter(
      ({ references, text }) =>
        references.some((address) => recreated.has(address)) ||
        [...text.matchAll(localReference)].some(([, name]) => locals.has(name ?? "")),
    )
    .map(({ path }) => path);
  const different = unique([
    ...changedPaths(before.values, after.values, { unset: "distinct" }),
    ...recomputed,
  ]).filter(([first]) => !after.ignored.includes(String(first)) && !after.ignored.includes("all"));
  const forcing = [
    ...forcingPaths(after.type, different),
    ...(["forEach", "count", "provider"] as const)
      .filter((name) => before[name] !== after[name])
      .map((name) => [name === "forEach" ? "for_each" : name]),
    ...(after.replacedBy.some((it) => changed.has(it.split(".").slice(0, 2).join(".")))
      ? [["replace_triggered_by"]]
      : []),
  ];
  if (forcing.length > 0) return { action: "replace", forcing, unknown };
  return { action: different.length > 0 ? "update" : "no-op", forcing: [], unknown };
}

/** Strings with Terraform expressions, and the resources that they reference. */
function expressionsIn(values: Values) {
  return textsIn(values)
    .filter(([, text]) => /(?<!\$)\$\{/.test(text))
    .map(([path, text]) => ({
      path,
      text,
      references: [...text.matchAll(anyReference)].map(([, type, id]) => `${type}.${id}`),
    }));
}
