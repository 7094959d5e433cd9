import { Composer, type Document, Parser } from "yaml";
import { hasSecretPattern, hidden, isSecretName } from "../input/secrets.ts";
import { isObject, ownValue, sameValue } from "../input/value-paths.ts";
import { type DiffBlock, type DiffLine, lineOf } from "./diff-line.ts";
import { diffPbtxt, isModelConfig } from "./diff-pbtxt.ts";
import { isUnset, longText, textOf, toList, withoutSecrets } from "./diff-texts.ts";

/** Helm chart values, stored as YAML texts of a release. */

type ChartValues = Readonly<Record<string, unknown>>;

/** Values of this project's chart that contain only names, sizes and words, never secrets. */
const plainChartPaths = [
  /^(embed|triton)\.image\.(repository|tag|digest|pullPolicy)$/,
  /^(embed|triton)\.(engine|backend|accelerator|sharedMemory|runtimeClassName|priorityClassName)$/,
  /^(embed|triton)\.resources\.(requests|limits)\.(cpu|memory)$/,
  /^(embed|triton)\.autoscaling\.(metric|source)$/,
  /^(embed|triton)\.budget\.unhealthyPodEvictionPolicy$/,
  /^(embed|triton)\.topologySpread\.(topologyKey|whenUnsatisfiable)$/,
  /^(embed|triton)\.tolerations\[\d+\]\.(operator|effect)$/,
  /^triton\.modelConfig\.variant$/,
  /^triton\.engineCache\.(existingClaim|storageClass|accessMode|size)$/,
  /^model\.(weights|pvc\.claimName|init\.sizeLimit)$/,
  /^quota\.hard\.(pods|(requests|limits)\.(cpu|memory)|requests\.nvidia\.com\/gpu)$/,
  /^limitRange\.(defaultRequest|default|max)\.(cpu|memory)$/,
  /^serviceMonitor\.interval$/,
];

/** Valid Service types. */
export const serviceTypes = /^(ClusterIP|NodePort|LoadBalancer|ExternalName)$/;

/** Characters of names, sizes and words. */
const plainForm = /^[\w.:/-]+$/;

/** Printable key of chart values; hides user-chosen keys, which may be secrets. */
export function chartKey(name: string): string {
  const isWord = /^[a-z]{1,30}([A-Z][a-z]{1,30}){0,6}$/.test(name);
  const isResource = /^((requests|limits)\.(cpu|memory)|(requests\.)?nvidia\.com\/gpu|sha256)$/;
  return isWord || isResource.test(name) ? name : hidden;
}

/** Changes of chart values by path, printing only values that cannot be secrets. */
export function diffChartValues(
  before: ChartValues,
  after: ChartValues,
): { readonly lines: readonly DiffLine[]; readonly blocks: readonly DiffBlock[] } {
  const lines: DiffLine[] = [];
  const blocks: DiffBlock[] = [];
  const walk = (was: unknown, is: unknown, place: string, key: string, secret: boolean) => {
    if (sameValue(was, is)) return;
    const known = secret || isSecretName(key);
    if (isObject(was) || isObject(is)) {
      const [a, b] = [isObject(was) ? was : {}, isObject(is) ? is : {}];
      for (const name of [...new Set([...Object.keys(a), ...Object.keys(b)])].sort()) {
        const inner = place === "" ? chartKey(name) : `${place}.${chartKey(name)}`;
        walk(ownValue(a, name), ownValue(b, name), inner, name, known);
      }
      return;
    }
    if (Array.isArray(was) || Array.isArray(is)) {
      const [a, b] = [toList(was), toList(is)];
      for (let i = 0; i < Math.max(a.length, b.length); i += 1) {
        walk(a[i], b[i], `${place}[${i}]`, key, known);
      }
      return;
    }
    const [from, to] = [textOf(was), textOf(is)];
    if (!known && (isModelConfig(from) || isModelConfig(to))) {
      const block = diffPbtxt(from, to);
      if (block !== undefined) {
        blocks.push({ title: block.title, lines: block.lines.map(withoutSecrets) });
        return;
      }
    }
    const shown = (value: unknown) => {
      if (isUnset(value) && typeof value !== "boolean") return undefined;
      if (typeof value === "boolean") return String(value);
      if (known) return hidden;
      if (typeof value === "number") return String(value);
      const text = String(value);
      const isKnown = /^(embed|triton)\.service\.type$/.test(place)
        ? serviceTypes.test(text)
        : plainChartPaths.some((path) => path.test(place)) && plainForm.test(text);
      return isKnown && text.length <= longText && !hasSecretPattern(text) ? text : hidden;
    };
    lines.push(lineOf(`values ${place}`, shown(was), shown(is)));
  };
  walk(before, after, "", "", false);
  return { lines, blocks };
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

/** Maximum nesting depth, because the recursive YAML parser could exhaust the stack. */
const maxYamlDepth = 60;

/** Parses one YAML document. */
function parseYaml(text: string): unknown {
  const tokens = [...new Parser().parse(text)];
  if (isDeep(tokens)) throw new RangeError("deeper than any chart");
  const documents = [...new Composer().compose(tokens)];
  const [document] = documents as readonly Document[];
  if (document === undefined) return undefined;
  if (documents.length > 1 || document.errors.length > 0) throw new SyntaxError("not one document");
  return document.toJS({ maxAliasCount: 50 });
}

/** Whether lists and maps are nested too deeply; iterative, because recursion could exhaust the stack. */
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
      const [a, b] = [under[key], over[key]];
      if (!(key in over)) return [key, a];
      return [key, isObject(a) && isObject(b) ? mergeValues(a, b) : b];
    }),
  );
}
