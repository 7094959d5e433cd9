import { chartKey, serviceTypes } from "../facts/chart-documents.ts";
import { hasSecretPattern, hidden, isSecretName } from "../input/secrets.ts";
import { hasNoContent, isObject, ownValue, sameValue, toList } from "../input/value-paths.ts";
import { type DiffBlock, type DiffLine, lineOf } from "./diff-line.ts";
import { diffPbtxt, isModelConfig } from "./diff-pbtxt.ts";
import { longText, textOf, withoutSecrets } from "./diff-texts.ts";

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

/** Characters of names, sizes and words. */
const plainForm = /^[\w.:/-]+$/;

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
      if (hasNoContent(value) && typeof value !== "boolean") return undefined;
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
