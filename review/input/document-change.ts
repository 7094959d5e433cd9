import { resolveText } from "../../artefact/terraform-text.ts";
import { environmentOutput } from "../../contract/environment.ts";
import { valueAt } from "../../contract/issue-lines.ts";
import type { Path, ResourceChange, StackChange, Values } from "./change.ts";
import { type DeclaredResource, declaredIn, sourceOf } from "./declared-resources.ts";
import {
  changedLocals,
  type DerivedAction,
  derivedActions,
  type ResourcePair,
} from "./derived-actions.ts";
import { unique } from "./plan-resources.ts";
import { newPrograms } from "./programs.ts";
import { secretPaths } from "./secrets.ts";
import { few, withoutKey } from "./stack-facts.ts";
import { subjectOf } from "./subject.ts";
import type { SynthesizedDocument } from "./synthesized-document.ts";
import { changedPaths, sameValue, textsIn } from "./value-paths.ts";

/**
 * Derives a change from two synthesized files of a stack; a missing file has no resources. The base is assumed to be deployed. Computed
 * values are expressions, which are assumed to change if a resource that they reference is recreated.
 */
export function changeOfDocuments(
  stack: string,
  base: SynthesizedDocument | undefined,
  head: SynthesizedDocument | undefined,
): StackChange {
  const pairs = pairsOf(base, head);
  const actions = derivedActions(pairs, changedLocals(base, head));
  const latest = head ?? base;
  return {
    stack,
    source: "synthesis",
    resources: pairs.map((pair) => resourceChange(pair, actions.get(pair.address)!, base, head)),
    drift: [],
    environmentBefore: base?.output?.[environmentOutput]?.value,
    environmentAfter: head?.output?.[environmentOutput]?.value,
    configuration: configurationIn(latest),
    configurationBefore: base && configurationIn(base),
    notes: [...pairs.flatMap(failingConditions), ...newPrograms(base, head)],
    modules: (base?.module ?? head?.module) && {
      before: base?.module ?? {},
      after: head?.module ?? {},
    },
    limitations: limitationsOf(base, head),
  };
}

interface MovedPair extends ResourcePair {
  readonly movedFrom?: string;
}

function pairsOf(
  base: SynthesizedDocument | undefined,
  head: SynthesizedDocument | undefined,
): readonly MovedPair[] {
  const before = declaredIn(base);
  const after = declaredIn(head);
  const moves = movesOf(head, before, after);
  const movedAway = new Set(moves.values());
  return [...new Set([...before.keys(), ...after.keys()])]
    .filter((address) => after.has(address) || !movedAway.has(address))
    .sort()
    .map((address) => {
      const from = moves.get(address);
      const pair = {
        address,
        before: before.get(from ?? address),
        after: after.get(address),
      };
      return from === undefined || pair.before === undefined ? pair : { ...pair, movedFrom: from };
    });
}

function resourceChange(
  { address, before, after, movedFrom }: MovedPair,
  { action: derived, forcing, unknown }: DerivedAction,
  base: SynthesizedDocument | undefined,
  head: SynthesizedDocument | undefined,
): ResourceChange {
  const declaration = (after ?? before)!;
  const isForgotten = (head?.removed ?? []).some(
    ({ from, lifecycle }) =>
      lifecycle?.destroy === false && (from === address || from === withoutKey(address)),
  );
  const action = derived === "delete" && isForgotten ? "forget" : derived;
  return {
    address,
    type: declaration.type,
    name: declaration.name,
    constructPath: declaration.constructPath,
    mode: declaration.mode,
    provider: sourceOf(declaration, head ?? base),
    programs: declaration.programs,
    action,
    ...(action === "replace" && declaration.createBeforeDestroy
      ? { createBeforeDestroy: true }
      : {}),
    before: before?.values,
    after: after?.values,
    unknown,
    sensitive: unique([
      ...secretPaths(declaration.type, before?.values),
      ...secretPaths(declaration.type, after?.values),
      ...sensitiveReferences(before?.values, base),
      ...sensitiveReferences(after?.values, head),
    ]),
    replacePaths: action === "replace" ? forcing : [],
    ...(movedFrom === undefined ? {} : { movedFrom }),
    imageResource: /^\$\{(docker_image\.[\w-]+)\.\w+\}$/.exec(
      String(declaration.values.image),
    )?.[1],
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

/** Previous address by new address, from `moved` blocks, including all instances, and Terraform's implicit moves. */
function movesOf(
  head: SynthesizedDocument | undefined,
  before: ReadonlyMap<string, DeclaredResource>,
  after: ReadonlyMap<string, DeclaredResource>,
): ReadonlyMap<string, string> {
  const declared = new Map((head?.moved ?? []).map(({ from, to }) => [to, from]));
  const moves = new Map<string, string>();
  for (const address of after.keys()) {
    if (before.has(address)) continue;
    const resource = withoutKey(address);
    const resourceFrom = declared.get(resource);
    const from =
      declared.get(address) ??
      (resourceFrom === undefined ? undefined : resourceFrom + address.slice(resource.length));
    const implicit = implicitMoveSource(address);
    if (from !== undefined) moves.set(address, from);
    else if (before.has(implicit) && !after.has(implicit)) moves.set(address, implicit);
  }
  return moves;
}

/** Terraform implicitly moves between a single resource and instance 0. */
function implicitMoveSource(address: string): string {
  return address.endsWith("[0]") ? address.slice(0, -"[0]".length) : `${address}[0]`;
}

function configurationIn(from: SynthesizedDocument | undefined): StackChange["configuration"] {
  return { terraform: from?.terraform, provider: providersIn(from), variable: from?.variable };
}

/** Provider configuration with references in the same file resolved, also transitively. */
function providersIn(from: SynthesizedDocument | undefined): unknown {
  let provider = from?.provider;
  for (let depth = 0; depth < 4; depth += 1) provider = resolveText(provider, from?.resource ?? {});
  return provider;
}

function sensitiveReferences(
  values: Values | undefined,
  from: SynthesizedDocument | undefined,
): readonly Path[] {
  const secret = (name: string) => valueAt(from?.variable, [name, "sensitive"]) === true;
  return textsIn(values)
    .filter(([, text]) => [...text.matchAll(/\bvar\.([\w-]+)/g)].some(([, name]) => secret(name!)))
    .map(([path]) => path);
}

/** Note for a resource that ignores changed arguments but rejects them in a condition. */
function failingConditions({ before, after }: ResourcePair): readonly string[] {
  if (before === undefined || after === undefined) return [];
  if (before.conditions === after.conditions) return [];
  const ignored = [
    ...new Set(changedPaths(before.values, after.values).map(([first = ""]) => String(first))),
  ].filter((name) => after.ignored.includes(name) || after.ignored.includes("all"));
  return ignored.length === 0
    ? []
    : [
        `${subjectOf(after, after.values, { services: new Map() })} was created with a different ${ignored.join(", ")} and its conditions require the new value: the plan fails until the value is restored or the resource is recreated.`,
      ];
}

const filesLimitation = "Files from which images, charts or weights are built";
const modulesLimitation = "Changed files of modules";

/** Returns whether files were not compared. */
export function omitsFiles(limitations: readonly string[]): boolean {
  return limitations.some(
    (it) => it.startsWith(filesLimitation) || it.startsWith(modulesLimitation),
  );
}

function limitationsOf(
  base: SynthesizedDocument | undefined,
  head: SynthesizedDocument | undefined,
): readonly string[] {
  const text = JSON.stringify([head?.resource ?? {}, head?.locals ?? {}]);
  const sameLocals = sameValue(base?.locals, head?.locals);
  const localModules = Object.entries(head?.module ?? {}).flatMap(([name, { source }]) =>
    /^\.{0,2}\//.test(String(source)) ? [`module.${name}`] : [],
  );
  const hashed =
    "Terraform hashes them during the plan and replaces the resources that depend on them.";
  return [
    "The deployed state and manual changes to it: the base configuration is assumed to be deployed.",
    ...(/file(set|sha256|md5|base64)?\(/.test(text)
      ? [
          head?.filesCompared === true
            ? `Changes of files that git ignores, such as weights: ${hashed}`
            : `${filesLimitation}${sameLocals ? "" : ", other than those listed here"}: ${hashed}`,
        ]
      : []),
    ...(localModules.length === 0
      ? []
      : [
          `${modulesLimitation} (${few(localModules)}): only a plan lists the resources of a module.`,
        ]),
    "Values computed by Terraform or a provider, such as ids and image digests.",
  ];
}
