import { Composer, type Document, Parser } from "yaml";
import type { Values } from "../input/change.ts";
import { hidden } from "../input/secrets.ts";
import { blocksOf, isObject, toList } from "../input/value-paths.ts";

/** Helm chart values, stored as YAML texts of a release. */

/** Valid Service types. */
export const serviceTypes = /^(ClusterIP|NodePort|LoadBalancer|ExternalName)$/;

/** Printable key of chart values; hides user-chosen keys, which may be secrets. */
export function chartKey(name: string): string {
  const isWord = /^[a-z]{1,30}([A-Z][a-z]{1,30}){0,6}$/.test(name);
  const isResource =
    /^((requests|limits)\.(cpu|memory)|(requests\.)?nvidia\.com\/(gpu|mig)[\w.-]*|sha256)$/;
  return isWord || isResource.test(name) ? name : hidden;
}

/** Merged documents of a release's `values`, later ones first; `undefined` if one is not valid YAML. */
export function chartDocuments(values: unknown): Readonly<Record<string, unknown>> | undefined {
  let merged: Readonly<Record<string, unknown>> = {};
  for (const text of toList(values)) {
    if (typeof text !== "string") return undefined;
    try {
      const parsed = parseYaml(text);
      if (parsed === null || parsed === undefined) continue;
      if (!isObject(parsed)) return undefined;
      merged = mergeValues(merged, parsed);
    } catch {
      return undefined;
    }
  }
  return merged;
}

/** Merged `values` and `set` of a release; without items of lists that `set` names, such as `parentRefs[0].name`. */
export function releaseValues(release: Values | undefined): Readonly<Record<string, unknown>> {
  return blocksOf(release?.set).reduce<Readonly<Record<string, unknown>>>(
    (merged, { name, value, type }) => {
      const path = String(name).split(/(?<!\\)\./);
      if (typeof value !== "string" || path.some((step) => step.includes("["))) return merged;
      const isFlag = type !== "string" && /^(true|false)$/.test(value);
      const inner = path.reduceRight<unknown>(
        (below, step) => ({ [step.replaceAll("\\", "")]: below }),
        isFlag ? value === "true" : value,
      );
      return mergeValues(merged, inner as typeof merged);
    },
    chartDocuments(release?.values) ?? {},
  );
}

/** Maximum nesting depth, because the recursive YAML parser could exhaust the stack. */
const maxYamlDepth = 60;

function parseYaml(text: string): unknown {
  const tokens = [...new Parser().parse(text)];
  if (isDeep(tokens)) throw new RangeError("deeper than any chart");
  const documents = [...new Composer().compose(tokens)];
  const [document] = documents as readonly Document[];
  if (document === undefined) return undefined;
  if (documents.length > 1 || document.errors.length > 0) throw new SyntaxError("not one document");
  return document.toJS({ maxAliasCount: 50 });
}

/** Returns whether lists and maps are nested too deeply. It is iterative, because recursion could exhaust the stack. */
function isDeep(tokens: readonly unknown[]): boolean {
  let level: readonly unknown[] = tokens;
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > maxYamlDepth) return true;
    level = level.flatMap((token) => {
      if (!isObject(token)) return [];
      const items = Array.isArray(token.items) ? token.items.filter(isObject) : [];
      return [token.value, ...items.flatMap(({ key, value }) => [key, value])].filter(isObject);
    });
  }
  return false;
}

function mergeValues(
  under: Readonly<Record<string, unknown>>,
  over: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    [...new Set([...Object.keys(under), ...Object.keys(over)])].map((key) => {
      const [left, right] = [under[key], over[key]];
      if (!(key in over)) return [key, left];
      return [key, isObject(left) && isObject(right) ? mergeValues(left, right) : right];
    }),
  );
}
