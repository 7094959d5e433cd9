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
  /^models\[\d+\]$/,
  /^triton\.(modelKind|variant)$/,
  /^(embed|triton)\.image\.(repository|tag|digest|pullPolicy)$/,
  /^(embed|triton)\.(engine|backend|accelerator|sharedMemory|runtimeClassName|priorityClassName)$/,
  /^(embed|triton)\.resources\.(requests|limits)\.(cpu|memory)$/,
  /^(embed|triton)\.autoscaling\.(metric|source)$/,
  /^(embed|triton)\.budget\.unhealthyPodEvictionPolicy$/,
  /^(embed|triton)\.topologySpread\.(topologyKey|whenUnsatisfiable)$/,
  /^(embed|triton)\.tolerations\[\d+\]\.(operator|effect)$/,
  /^gpuResourceName$/,
  /^triton\.engineCache\.(existingClaim|storageClass|accessMode|size)$/,
  /^model\.(weights|pvc\.claimName|init\.sizeLimit)$/,
  /^quota\.hard\.(pods|(requests|limits)\.(cpu|memory)|requests\.nvidia\.com\/(gpu|mig)[\w.-]*)$/,
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
  const isResource =
    /^((requests|limits)\.(cpu|memory)|(requests\.)?nvidia\.com\/(gpu|mig)[\w.-]*|sha256)$/;
  return isWord || isResource.test(name) ? name : hidden;
}

/** Changes of chart values by path, printing only values that cannot be secrets. */
export function diffChartValues(
  before: ChartValues,
  after: ChartValues,
): { readonly lines: readonly DiffLine[]; readonly blocks: readonly DiffBlock[] } {
  const lines: DiffLine[] = [];
  const blocks: DiffBlock[] = [];
  const walk = (
    oldValue: unknown,
    newValue: unknown,
    label: string,
    key: string,
    secret: boolean,
  ) => {
    if (sameValue(oldValue, newValue)) return;
    const isSecret = secret || isSecretName(key);
    if (isObject(oldValue) || isObject(newValue)) {
      const [left, right] = [
        isObject(oldValue) ? oldValue : {},
        isObject(newValue) ? newValue : {},
      ];
      for (const name of [...new Set([...Object.keys(left), ...Object.keys(right)])].sort()) {
        const inner = label === "" ? chartKey(name) : `${label}.${chartKey(name)}`;
        walk(ownValue(left, name), ownValue(right, name), inner, name, isSecret);
      }
      return;
    }
    if (Array.isArray(oldValue) || Array.isArray(newValue)) {
      const [left, right] = [toList(oldValue), toList(newValue)];
      for (let i = 0; i < Math.max(left.length, right.length); i += 1) {
        walk(left[i], right[i], `${label}[${i}]`, key, isSecret);
      }
      return;
    }
    const [from, to] = [textOf(oldValue), textOf(newValue)];
    if (!isSecret && (isModelConfig(from) || isModelConfig(to))) {
      const block = diffPbtxt(from, to);
      if (block !== undefined) {
        blocks.push({ title: block.title, lines: block.lines.map(withoutSecrets) });
        return;
      }
    }
    const printable = (value: unknown) => {
      if (isUnset(value) && typeof value !== "boolean") return undefined;
      if (typeof value === "boolean") return String(value);
      if (isSecret) return hidden;
      if (typeof value === "number") return String(value);
      const text = String(value);
      const isKnown = /^(embed|triton)\.service\.type$/.test(label)
        ? serviceTypes.test(text)
        : plainChartPaths.some((path) => path.test(label)) && plainForm.test(text);
      return isKnown && text.length <= longText && !hasSecretPattern(text) ? text : hidden;
    };
    lines.push(lineOf(`values ${label}`, printable(oldValue), printable(newValue)));
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
      const [left, right] = [under[key], over[key]];
      if (!(key in over)) return [key, left];
      return [key, isObject(left) && isObject(right) ? mergeValues(left, right) : right];
    }),
  );
}
