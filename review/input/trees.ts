import { environmentOutput } from "../../contract/environment.ts";
import type { Path, ResourceChange, StackChange, Values } from "./change.ts";
import { type Declared, declaredIn, resolved, sourceOf } from "./declared-resources.ts";
import { changedLocals, effectsOf } from "./derived-actions.ts";

import { unique } from "./plan-resources.ts";
import { newPrograms } from "./programs.ts";
import { secretPaths } from "./secrets.ts";
import { few, withoutKey } from "./stack-facts.ts";
import type { SynthesizedDocument } from "./synthesized-document.ts";
import { changedPaths, sameValue, textsIn, valueAt } from "./value-paths.ts";

/** The change from one synthesized file of a stack to another; an absent one has no resources. */
export function changeOfTrees(
  stack: string,
  before: SynthesizedDocument | undefined,
  after: SynthesizedDocument | undefined,
): StackChange {
  const old = declaredIn(before);
  const fresh = declaredIn(after);
  const movedFrom = movesOf(after, old, fresh);
  const movedAway = new Set([...movedFrom].filter(([to]) => fresh.has(to)).map(([, from]) => from));
  const pairs = [...new Set([...old.keys(), ...fresh.keys()])]
    .filter((address) => fresh.has(address) || !movedAway.has(address))
    .sort()
    .map((address) => {
      const from = movedFrom.get(address);
      return { address, from, was: old.get(from ?? address), is: fresh.get(address) };
    });
  const effects = effectsOf(pairs, changedLocals(before, after));
  const kept = new Set(
    (after?.removed ?? []).filter((it) => it.lifecycle?.destroy === false).map(({ from }) => from),
  );
  const head = after ?? before;
  const resources = pairs.map(({ address, from, was, is }): ResourceChange => {
    const one = (is ?? was)!;
    const { forcing, unknown, ...effect } = effects.get(address)!;
    const isKept = kept.has(address) || kept.has(withoutKey(address));
    const action = effect.action === "delete" && isKept ? "forget" : effect.action;
    return {
      address,
      type: one.type,
      name: one.name,
      constructPath: one.constructPath,
      mode: one.mode,
      provider: sourceOf(one, head),
      programs: one.programs,
      action,
      ...(action === "replace" && one.createBeforeDestroy ? { createBeforeDestroy: true } : {}),
      before: was?.values,
      after: is?.values,
      unknown,
      sensitive: unique([
        ...secretPaths(one.type, was?.values),
        ...secretPaths(one.type, is?.values),
        ...sensitiveReferences(was?.values, before),
        ...sensitiveReferences(is?.values, after),
      ]),
      replacePaths: action === "replace" ? forcing : [],
      ...(from !== undefined && was !== undefined ? { movedFrom: from } : {}),
      imageResource: /^\$\{(docker_image\.[\w-]+)\.\w+\}$/.exec(
        String((is ?? was)?.values.image),
      )?.[1],
    };
  });
  return {
    stack,
    source: "trees",
    resources,
    drift: [],
    environmentBefore: before?.output?.[environmentOutput]?.value,
    environmentAfter: after?.output?.[environmentOutput]?.value,
    configuration: configurationIn(head),
    configurationBefore: before && configurationIn(before),
    notes: [...pairs.flatMap(({ was, is }) => refusalOf(was, is)), ...newPrograms(before, after)],
    modules: (before?.module ?? after?.module) && {
      before: before?.module ?? {},
      after: after?.module ?? {},
    },
    limitations: notKnownOf(before, after),
  };
}

/** A plan with what only the synthesized file says: paths of constructs, the backend. */
export function withDocument(change: StackChange, head: SynthesizedDocument): StackChange {
  const declared = declaredIn(head);
  return {
    ...change,
    configuration: configurationIn(head),
    resources: change.resources.map((it) => {
      const { constructPath } =
        declared.get(it.address) ?? declared.get(withoutKey(it.address)) ?? {};
      return constructPath === undefined ? it : { ...it, constructPath };
    }),
  };
}

/** Where what stands at an address was before: as the file says it, with all instances of a resource, and as Terraform takes it. */
function movesOf(
  after: SynthesizedDocument | undefined,
  old: ReadonlyMap<string, Declared>,
  fresh: ReadonlyMap<string, Declared>,
): ReadonlyMap<string, string> {
  const said = new Map((after?.moved ?? []).map(({ from, to }) => [to, from]));
  const moves = new Map<string, string>();
  for (const address of fresh.keys()) {
    if (old.has(address)) continue;
    const key = address.slice(withoutKey(address).length);
    const whole = said.get(withoutKey(address));
    const other = otherForm(address);
    const from = said.get(address) ?? (whole === undefined ? undefined : `${whole}${key}`);
    if (from !== undefined) moves.set(address, from);
    else if (old.has(other) && !fresh.has(other)) moves.set(address, other);
  }
  return moves;
}

/** Terraform takes the only one for the first of several, and the other way round. */
function otherForm(address: string): string {
  return address.endsWith("[0]") ? address.slice(0, -"[0]".length) : `${address}[0]`;
}

function configurationIn(from: SynthesizedDocument | undefined): StackChange["configuration"] {
  return { terraform: from?.terraform, provider: providersIn(from), variable: from?.variable };
}

/** Providers with what stands in the same file, also where one reference leads to the next. */
function providersIn(from: SynthesizedDocument | undefined): unknown {
  let provider = from?.provider;
  for (let depth = 0; depth < 4; depth += 1) provider = resolved(provider, from);
  return provider;
}

/** Where a value is of a variable that is declared as sensitive. */
function sensitiveReferences(
  values: Values | undefined,
  from: SynthesizedDocument | undefined,
): readonly Path[] {
  const secret = (name: string) => valueAt(from?.variable, [name, "sensitive"]) === true;
  return [...textsIn(values)]
    .filter(([, text]) => [...text.matchAll(/\bvar\.([\w-]+)/g)].some(([, name]) => secret(name!)))
    .map(([path]) => path);
}

/** What is made once, and may have no other arguments from then on: they are ignored, and a condition compares them. */
function refusalOf(was: Declared | undefined, is: Declared | undefined): readonly string[] {
  if (was === undefined || is === undefined || was.conditions === is.conditions) return [];
  const ignored = [
    ...new Set(changedPaths(was.values, is.values).map(([first = ""]) => String(first))),
  ].filter((name) => is.ignored.includes(name) || is.ignored.includes("all"));
  return ignored.length === 0
    ? []
    : [
        `${is.address} was created with a different ${ignored.join(", ")} and its conditions require the new value: the plan fails until the value is restored or the resource is recreated.`,
      ];
}

/** Begins the sentence on files that nobody compared. */
export const filesUnknown = "Files from which images, charts or weights are built";
/** Begins the sentence on modules in folders, whose files are not compared. */
export const modulesUnknown = "Changed files of modules";

/** What a plan would say, and two trees do not. */
function notKnownOf(
  before: SynthesizedDocument | undefined,
  after: SynthesizedDocument | undefined,
): readonly string[] {
  const text = JSON.stringify([after?.resource ?? {}, after?.locals ?? {}]);
  const sameLocals = sameValue(before?.locals, after?.locals);
  const localModules = Object.entries(after?.module ?? {}).flatMap(([name, { source }]) =>
    /^\.{0,2}\//.test(String(source)) ? [`module.${name}`] : [],
  );
  return [
    "The deployed state and manual changes to it: the base configuration is assumed to be deployed.",
    ...(/file(set|sha256|md5|base64)?\(/.test(text)
      ? [
          after?.filesCompared === true
            ? "Changes of files that git ignores, such as weights: Terraform hashes them during the plan and replaces the resources that depend on them."
            : `${filesUnknown}${sameLocals ? "" : ", other than those listed here"}: Terraform hashes them during the plan and replaces the resources that depend on them.`,
        ]
      : []),
    ...(localModules.length === 0
      ? []
      : [`${modulesUnknown} (${few(localModules)}): only a plan lists the resources of a module.`]),
    "Values computed by Terraform or a provider, such as ids and image digests.",
  ];
}
