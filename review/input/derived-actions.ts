import type { Action, Path, Values } from "./change.ts";
import { anyReference, type Declared, localReference, withLocals } from "./declared-resources.ts";
import { forcingPaths } from "./force-new.ts";
import { unique } from "./plan-resources.ts";
import { withoutKey } from "./stack-facts.ts";
import type { SynthesizedDocument } from "./synthesized-document.ts";
import { changedPaths, textsIn } from "./value-paths.ts";

interface Pair {
  readonly address: string;
  readonly was?: Declared;
  readonly is?: Declared;
}

interface Effect {
  readonly action: Action;
  readonly forcing: readonly Path[];
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

/** Action on each resource. A recreated resource may cause its dependents to be replaced, so it iterates to a fixed point. */
export function effectsOf(
  pairs: readonly Pair[],
  locals: ReadonlySet<string>,
): ReadonlyMap<string, Effect> {
  const effects = new Map<string, Effect>();
  const recreated = new Set<string>();
  const touched = new Set<string>();
  for (let changed = true; changed; ) {
    changed = false;
    for (const pair of pairs) {
      const effect = effectOf(pair, { recreated, touched, locals });
      if (effects.get(pair.address)?.action !== effect.action) changed = true;
      effects.set(pair.address, effect);
      // expressions reference a resource without its instance key
      if (["create", "replace"].includes(effect.action)) recreated.add(withoutKey(pair.address));
      if (effect.action !== "no-op") touched.add(withoutKey(pair.address));
    }
  }
  return effects;
}

/** Changes outside the arguments of a resource. */
interface Surroundings {
  /** Created or replaced resources. */
  readonly recreated: ReadonlySet<string>;
  /** Resources with any change. */
  readonly touched: ReadonlySet<string>;
  /** Locals with a changed value. */
  readonly locals: ReadonlySet<string>;
}

function effectOf({ was, is }: Pair, { recreated, touched, locals }: Surroundings): Effect {
  if (is === undefined) return { action: "delete", forcing: [], unknown: [] };
  const unknown = expressionsIn(is.values);
  const paths = unknown.map(({ path }) => path);
  if (was === undefined) {
    return { action: is.mode === "data" ? "read" : "create", forcing: [], unknown: paths };
  }
  const moved = unknown
    .filter(
      ({ references, text }) =>
        references.some((address) => recreated.has(address)) ||
        [...text.matchAll(localReference)].some(([, name]) => locals.has(name ?? "")),
    )
    .map(({ path }) => path);
  const different = unique([
    ...changedPaths(was.values, is.values, { as: "given" }),
    ...moved,
  ]).filter(([first]) => !is.ignored.includes(String(first)) && !is.ignored.includes("all"));
  const forcing = [
    ...forcingPaths(is.type, different),
    ...(was.forEach === is.forEach ? [] : [["for_each"] as const]),
    ...(was.count === is.count ? [] : [["count"] as const]),
    ...(was.provider === is.provider ? [] : [["provider"] as const]),
    ...(is.replacedBy.some((it) => touched.has(it.split(".").slice(0, 2).join(".")))
      ? [["replace_triggered_by"] as const]
      : []),
  ];
  if (is.mode === "data") return { action: "no-op", forcing: [], unknown: paths };
  if (forcing.length > 0) return { action: "replace", forcing, unknown: paths };
  return { action: different.length > 0 ? "update" : "no-op", forcing: [], unknown: paths };
}

/** Strings with Terraform expressions, and the resources that they reference. */
function expressionsIn(values: Values): readonly {
  readonly path: Path;
  readonly text: string;
  readonly references: readonly string[];
}[] {
  return [...textsIn(values)]
    .filter(([, text]) => /(?<!\$)\$\{/.test(text))
    .map(([path, text]) => ({
      path,
      text,
      references: [...text.matchAll(anyReference)].map(([, type, id]) => `${type}.${id}`),
    }));
}
