import { modelConfigFields } from "../../client/triton/model-config.ts";
import { type DiffBlock, diffTexts } from "./diff-line.ts";

/** Changes of a `config.pbtxt` by field; `undefined` if a text cannot be parsed. */
export function diffPbtxt(before: string, after: string): DiffBlock | undefined {
  const [left, right] = [fieldsOf(before), fieldsOf(after)];
  if (left === undefined || right === undefined) return undefined;
  const model = right.get("name") ?? left.get("name");
  return {
    title: model === undefined ? "config.pbtxt" : `config.pbtxt of ${model.replaceAll('"', "")}`,
    lines: diffTexts(left, right).map((line) => ({ ...line, path: shortPath(line.path) })),
  };
}

/** Shortens the path of a TensorRT parameter to its name. */
function shortPath(path: string): string {
  return path.replace(
    /^optimization\.execution_accelerators\.gpu_execution_accelerator\[(\w+)\]\.parameters\[(\w+)\]$/,
    "$1 $2",
  );
}

/** Returns whether a text is a model configuration, which is recognised by its fields. */
export function isModelConfig(text: string): boolean {
  return (
    /^[ \t]*(max_batch_size|platform|backend)\s*:/m.test(text) &&
    /^[ \t]*(input|output)\b/m.test(text)
  );
}

/** Every field of a configuration by its path: `instance_group.count` is `1`. */
export function fieldsOf(text: string): ReadonlyMap<string, string> | undefined {
  const known = cachedFields.get(text);
  if (known !== undefined) return known;
  const fields = readFields(text);
  if (fields !== undefined && cachedFields.size < maxCachedFields) cachedFields.set(text, fields);
  return fields;
}

/** Cache by text, because many resources have the same configuration. */
const cachedFields = new Map<string, ReadonlyMap<string, string>>();
const maxCachedFields = 500;

function readFields(text: string): ReadonlyMap<string, string> | undefined {
  try {
    return modelConfigFields(text);
  } catch {
    return undefined;
  }
}
