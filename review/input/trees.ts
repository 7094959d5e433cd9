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

/** Compares two synthesized files of a stack; a missing file has no resources. */
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
    const declaration = (is ?? was)!;
    const { forcing, unknown, ...effect } = effects.get(address)!;
    const isKept = kept.has(address) || kept.has(withoutKey(address));
    const action = effect.action === "delete" && isKept ? "forget" : effect.action;
    return {
      address,
      type: declaration.type,
      name: declaration.name,
      constructPath: declaration.constructPath,
      mode: declaration.mode,
      provider: sourceOf(declaration, head),
      programs: declaration.programs,
      action,
      ...(action === "replace" && declaration.createBeforeDestroy
        ? { createBeforeDestroy: true }
        : {}),
      before: was?.values,
      after: is?.values,
      unknown,
      sensitive: unique([
        ...secretPaths(declaration.type, was?.values),
        ...secretPaths(declaration.type, is?.values),
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

/** Adds construct paths and the backend from the synthesized file to a plan. */
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

/** Previous address by new address: from `moved` blocks, including all instances, and Terraform's implicit moves. */
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

/** Terraform implicitly moves between a single resource and instance 0. */
function otherForm(address: string): string {
  return address.endsWith("[0]") ? address.slice(0, -"[0]".length) : `${address}[0]`;
}

function configurationIn(from: SynthesizedDocument | undefined): StackChange["configuration"] {
  return { terraform: from?.terraform, provider: providersIn(from), variable: from?.variable };
}

/** Provider configuration with references in the same file resolved, also transitively. */
function providersIn(from: SynthesizedDocument | undefined): unknown {
  let provider = from?.provider;
  for (let depth = 0; depth < 4; depth += 1) provider = resolved(provider, from);
  return provider;
}

/** Paths of values that reference sensitive variables. */
function sensitiveReferences(
  values: Values | undefined,
  from: SynthesizedDocument | undefined,
): readonly Path[] {
  const secret = (name: string) => valueAt(from?.variable, [name, "sensitive"]) === true;
  return [...textsIn(values)]
    .filter(([, text]) => [...text.matchAll(/\bvar\.([\w-]+)/g)].some(([, name]) => secret(name!)))
    .map(([path]) => path);
}

/** Resources that ignore changes of arguments but reject them with a condition: the plan will fail. */
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

/** Start of the sentence about files that were not compared. */
export const filesUnknown = "Files from which images, charts or weights are built";
/** Start of the sentence about local modules, whose files are not compared. */
export const modulesUnknown = "Changed files of modules";

/** What two synthesized files cannot show. */
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
