import { resolveText } from "../../artefact/terraform-text.ts";
import { valueAt } from "../../contract/issue-lines.ts";
import type { ResourceChange, Values } from "./change.ts";
import type { SynthesizedDocument } from "./synthesized-document.ts";
import { blockOf, blocksOf, canonical, isObject } from "./value-paths.ts";

/** Resource or data source in a synthesized file. */
export interface DeclaredResource {
  readonly address: string;
  readonly type: string;
  readonly name: string;
  readonly mode: ResourceChange["mode"];
  readonly constructPath?: string;
  /** Arguments, with references to values in the same file resolved. */
  readonly values: Values;
  /** `for_each` expression with locals expanded, for comparison. */
  readonly forEach?: string;
  /** `count` expression, if it is not a number. */
  readonly count?: string;
  readonly provider?: string;
  readonly programs?: readonly string[];
  readonly createBeforeDestroy: boolean;
  /** Text of the preconditions and postconditions, which is compared with that of the other file. */
  readonly conditions: string;
  readonly ignored: readonly string[];
  readonly replacedBy: readonly string[];
}

const metaArguments = new Set(
  "// depends_on count for_each provider lifecycle provisioner connection".split(" "),
);

export function declaredIn(
  from: SynthesizedDocument | undefined,
): ReadonlyMap<string, DeclaredResource> {
  const found = new Map<string, DeclaredResource>();
  const addAll = (
    all: Readonly<Record<string, Record<string, unknown>>>,
    mode: DeclaredResource["mode"],
  ) => {
    for (const [type, resources] of Object.entries(all)) {
      for (const [name, body] of Object.entries(resources)) {
        if (!isObject(body)) continue;
        const address = `${mode === "data" ? "data." : ""}${type}.${name}`;
        for (const key of keysOf(body.count)) {
          const instance = `${address}${key}`;
          found.set(instance, declared(instance, type, name, mode, body, from));
        }
      }
    }
  };
  addAll(from?.resource ?? {}, "managed");
  addAll(from?.data ?? {}, "data");
  return found;
}

/** Maximum number of instances listed separately. */
const maxInstances = 100;

/** Address suffix of each `count` instance; one empty suffix if `count` is missing or an expression. */
function keysOf(count: unknown): readonly string[] {
  const number = Number(count ?? Number.NaN);
  if (!Number.isInteger(number) || number < 0 || number > maxInstances) return [""];
  return Array.from({ length: number }, (_, index) => `[${index}]`);
}

function declared(
  address: string,
  type: string,
  name: string,
  mode: DeclaredResource["mode"],
  body: Readonly<Record<string, unknown>>,
  from: SynthesizedDocument | undefined,
): DeclaredResource {
  const args = Object.fromEntries(Object.entries(body).filter(([key]) => !metaArguments.has(key)));
  const lifecycle = isObject(body.lifecycle) ? body.lifecycle : {};
  const path = valueAt(body, ["//", "metadata", "path"]);
  return {
    address,
    type,
    name,
    mode,
    constructPath: typeof path === "string" ? path : undefined,
    values: resolveText(args, from?.resource ?? {}) as Values,
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

/** Commands of provisioners in a synthesized file. */
function commandsOf(provisioners: unknown): readonly string[] {
  return blocksOf(provisioners).flatMap((provisioner) =>
    Object.entries(provisioner).map(([type, body]) => {
      const command = isObject(body) ? body.command : undefined;
      return type === "local-exec" && typeof command === "string" ? command : "";
    }),
  );
}

/** Source of a resource's provider in `required_providers`. */
export function sourceOf(
  { type, provider }: DeclaredResource,
  from: SynthesizedDocument | undefined,
): string | undefined {
  const [name = ""] = (provider ?? type.replace(/_.*/s, "")).split(".");
  const required = blockOf(from?.terraform, "required_providers", name).source;
  return typeof required === "string" ? required.split("/").slice(-2).join("/") : undefined;
}

function textsOf(value: unknown): readonly string[] {
  return [value].flat().filter((it) => typeof it === "string");
}

export const anyReference =
  /(?<![\w.])((?:docker|kubernetes|helm|terraform|null|local|random|time)_[a-z0-9_]+)\.([A-Za-z0-9_-]+)/g;
export const localReference = /(?<![\w.])local\.([A-Za-z0-9_-]+)/g;

/** Expands the locals in an expression, for comparison. */
export function withLocals(text: string, from: SynthesizedDocument | undefined, depth = 0): string {
  if (depth > 8) return text;
  return text.replace(localReference, (match, name: string) => {
    const local = from?.locals?.[name];
    return local === undefined ? match : `(${withLocals(JSON.stringify(local), from, depth + 1)})`;
  });
}
