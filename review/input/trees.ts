import { environmentOutput } from "../../contract/environment.ts";
import type { Action, Path, ResourceChange, StackChange, Values } from "./change.ts";
import { forcingPaths } from "./force-new.ts";
import { unique } from "./plan-json.ts";
import { newPrograms } from "./programs.ts";
import { secretPaths } from "./secrets.ts";
import { few, withoutKey } from "./stack-facts.ts";
import type { SynthesizedDocument } from "./synthesized-document.ts";
import {
  blockOf,
  blocksOf,
  canonical,
  changedPaths,
  isObject,
  sameValue,
  textsIn,
  valueAt,
} from "./value-paths.ts";

interface Declared {
  readonly address: string;
  readonly type: string;
  readonly name: string;
  readonly mode: ResourceChange["mode"];
  readonly constructPath?: string;
  /** Arguments, with references to what stands in the file replaced. */
  readonly values: Values;
  /** The same without the replacement of what only Terraform knows: what is compared. */
  readonly forEach?: string;
  /** Of a resource with a `count` that is no number: as it stands there. */
  readonly count?: string;
  readonly provider?: string;
  readonly programs?: readonly string[];
  readonly createBeforeDestroy: boolean;
  /** What must hold of it before and after an apply, as it stands there. */
  readonly conditions: string;
  readonly ignored: readonly string[];
  readonly replacedBy: readonly string[];
}

/** What Terraform keeps for itself. */
const metaArguments = new Set(
  "// depends_on count for_each provider lifecycle provisioner connection".split(" "),
);

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
    besides: [...pairs.flatMap(({ was, is }) => refusalOf(was, is)), ...newPrograms(before, after)],
    modules: (before?.module ?? after?.module) && {
      before: before?.module ?? {},
      after: after?.module ?? {},
    },
    notKnown: notKnownOf(before, after),
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

function declaredIn(from: SynthesizedDocument | undefined): ReadonlyMap<string, Declared> {
  const found = new Map<string, Declared>();
  const take = (all: Readonly<Record<string, Record<string, unknown>>>, mode: Declared["mode"]) => {
    for (const [type, resources] of Object.entries(all)) {
      for (const [name, body] of Object.entries(resources)) {
        if (!isObject(body)) continue;
        const address = `${mode === "data" ? "data." : ""}${type}.${name}`;
        for (const key of keysOf(body.count)) {
          const own = `${address}${key}`;
          found.set(own, declared(own, type, name, mode, body, from));
        }
      }
    }
  };
  take(from?.resource ?? {}, "managed");
  take(from?.data ?? {}, "data");
  return found;
}

/** More of one resource are told as one. */
const mostInstances = 100;

/** What stands behind the address of each instance that a `count` makes: nothing where it is not given, or an expression. */
function keysOf(count: unknown): readonly string[] {
  const number = Number(count ?? Number.NaN);
  if (!Number.isInteger(number) || number < 0 || number > mostInstances) return [""];
  return Array.from({ length: number }, (_, index) => `[${index}]`);
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

function declared(
  address: string,
  type: string,
  name: string,
  mode: Declared["mode"],
  body: Readonly<Record<string, unknown>>,
  from: SynthesizedDocument | undefined,
): Declared {
  const own = Object.fromEntries(Object.entries(body).filter(([key]) => !metaArguments.has(key)));
  const lifecycle = isObject(body.lifecycle) ? body.lifecycle : {};
  const path = valueAt(body, ["//", "metadata", "path"]);
  return {
    address,
    type,
    name,
    mode,
    constructPath: typeof path === "string" ? path : undefined,
    values: resolved(own, from) as Values,
    forEach: body.for_each === undefined ? undefined : withLocals(String(body.for_each), from),
    count:
      keysOf(body.count)[0] === "" && body.count !== undefined
        ? withLocals(String(body.count), from)
        : undefined,
    provider: typeof body.provider === "string" ? body.provider : undefined,
    programs: body.provisioner === undefined ? undefined : commandsOf(body.provisioner),
    createBeforeDestroy: lifecycle.create_before_destroy === true,
    conditions: canonical([lifecycle.precondition ?? [], lifecycle.postcondition ?? []]),
    ignored: textsOf(lifecycle.ignore_changes),
    replacedBy: textsOf(lifecycle.replace_triggered_by).map((it) => it.replace(/^\$\{|\}$/g, "")),
  };
}

/** Commands of provisioners, as a synthesized file has them. */
function commandsOf(provisioners: unknown): readonly string[] {
  return blocksOf(provisioners).flatMap((provisioner) =>
    Object.entries(provisioner).map(([type, body]) => {
      const command = isObject(body) ? body.command : undefined;
      return type === "local-exec" && typeof command === "string" ? command : "";
    }),
  );
}

/** The provider of a resource, as `required_providers` names its source. */
function sourceOf(
  { type, provider }: Declared,
  from: SynthesizedDocument | undefined,
): string | undefined {
  const [name = ""] = (provider ?? type.replace(/_.*/s, "")).split(".");
  const required = blockOf(from?.terraform, "required_providers", name).source;
  return typeof required === "string" ? required.split("/").slice(-2).join("/") : undefined;
}

function textsOf(value: unknown): readonly string[] {
  return [value].flat().filter((it) => typeof it === "string");
}

/** `${docker_network.host.name}`: a whole reference, to one attribute of one resource. */
const reference = /\$\{((?:data\.)?[a-z0-9_]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_.[\]]+)\}/g;
/** A reference to a resource anywhere in an expression. */
const anyReference =
  /(?<![\w.])((?:docker|kubernetes|helm|terraform|null|local|random|time)_[a-z0-9_]+)\.([A-Za-z0-9_-]+)/g;
const localReference = /(?<![\w.])local\.([A-Za-z0-9_-]+)/g;

/** Values with references replaced by what stands in the same file. */
function resolved(value: unknown, from: SynthesizedDocument | undefined): unknown {
  if (typeof value === "string") {
    return value.replace(reference, (whole, type: string, id: string, path: string) => {
      const steps = path.split(/[.[\]]+/).filter((step) => step !== "");
      const found = steps.reduce<unknown>(
        (inner, step) =>
          step === "0" && isObject(inner)
            ? inner
            : valueAt(inner, [/^\d+$/.test(step) ? Number(step) : step]),
        from?.resource?.[type]?.[id],
      );
      return (typeof found === "string" || typeof found === "number") && found !== whole
        ? String(found)
        : whole;
    });
  }
  if (Array.isArray(value)) return value.map((item) => resolved(item, from));
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, resolved(item, from)]),
  );
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

/** An expression with the locals that it names written out: two expressions are equal when these are. */
function withLocals(text: string, from: SynthesizedDocument | undefined, depth = 0): string {
  if (depth > 8) return text;
  return text.replace(localReference, (whole, name: string) => {
    const local = from?.locals?.[name];
    return local === undefined ? whole : `(${withLocals(JSON.stringify(local), from, depth + 1)})`;
  });
}

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

/** Locals that are another expression afterwards. */
function changedLocals(
  before: SynthesizedDocument | undefined,
  after: SynthesizedDocument | undefined,
): ReadonlySet<string> {
  const text = (name: string, from: SynthesizedDocument | undefined) =>
    withLocals(`local.${name}`, from);
  const names = Object.keys(after?.locals ?? {});
  return new Set(names.filter((name) => text(name, before) !== text(name, after)));
}

/** What happens to each resource. What depends on a resource that is made anew may be replaced in turn, until no more is. */
function effectsOf(
  pairs: readonly Pair[],
  locals: ReadonlySet<string>,
): ReadonlyMap<string, Effect> {
  const effects = new Map<string, Effect>();
  const anew = new Set<string>();
  const touched = new Set<string>();
  for (let changed = true; changed; ) {
    changed = false;
    for (const pair of pairs) {
      const effect = effectOf(pair, { anew, touched, locals });
      if (effects.get(pair.address)?.action !== effect.action) changed = true;
      effects.set(pair.address, effect);
      // expressions name a resource without its key
      if (["create", "replace"].includes(effect.action)) anew.add(withoutKey(pair.address));
      if (effect.action !== "no-op") touched.add(withoutKey(pair.address));
    }
  }
  return effects;
}

/** What is different besides the arguments of a resource themselves. */
interface Surroundings {
  /** Resources that are made, or made again. */
  readonly anew: ReadonlySet<string>;
  /** Resources with any change. */
  readonly touched: ReadonlySet<string>;
  /** Locals with another value. */
  readonly locals: ReadonlySet<string>;
}

function effectOf({ was, is }: Pair, { anew, touched, locals }: Surroundings): Effect {
  if (is === undefined) return { action: "delete", forcing: [], unknown: [] };
  const unknown = expressionsIn(is.values);
  const paths = unknown.map(({ path }) => path);
  if (was === undefined) {
    return { action: is.mode === "data" ? "read" : "create", forcing: [], unknown: paths };
  }
  const moved = unknown
    .filter(
      ({ references, text }) =>
        references.some((address) => anew.has(address)) ||
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

/** Texts that Terraform has to evaluate, and the resources that they name. */
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
        `${is.address} was made with another ${ignored.join(", ")}, and its conditions ask for this one: a plan is refused until it is set back, or made anew.`,
      ];
}

/** Begins the sentence on files that nobody compared. */
export const filesUnknown = "Whether files that images, charts or weights are made of";
/** Begins the sentence on modules in folders, whose files are not compared. */
export const modulesUnknown = "Whether files of modules changed";

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
    "What is deployed now, and whether it was changed by hand: the base tree stands for it.",
    ...(/file(set|sha256|md5|base64)?\(/.test(text)
      ? [
          after?.filesCompared === true
            ? "Whether files that git ignores, such as weights, changed: Terraform hashes them when it plans, and makes anew what depends on them."
            : `${filesUnknown} changed${sameLocals ? "" : " besides what is named here"}: Terraform hashes them when it plans, and makes anew what depends on them.`,
        ]
      : []),
    ...(localModules.length === 0
      ? []
      : [`${modulesUnknown} (${few(localModules)}): only a plan names what is in a module.`]),
    "Values that only Terraform or a provider computes, such as ids and digests of tags.",
  ];
}
