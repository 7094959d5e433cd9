import { isCollection, isMap, isPair, type Node, parseDocument, type YAMLMap } from "yaml";
import { UserError } from "../../contract/user-error.ts";

/**
 * Sets one value in the text of a settings file, and leaves every other character as it is.
 *
 * @param text - Valid YAML with a block map at its root.
 * @param value - A plain YAML scalar.
 */
export function withSetting(text: string, path: readonly string[], value: string): string {
  const document = parseDocument(text);
  const existing = document.getIn(path, true) as Node | undefined;
  if (existing?.range) {
    return text.slice(0, existing.range[0]) + value + text.slice(existing.range[1]);
  }
  let depth = path.length - 1;
  while (document.getIn(path.slice(0, depth), true) === undefined) depth -= 1;
  const map = document.getIn(path.slice(0, depth), true);
  if (!isMap<Node, Node | null>(map)) {
    throw new UserError(`${path.slice(0, depth).join(".")} must be a map of settings in the file`);
  }
  const [key, ...inner] = path.slice(depth);
  const entry = `${key}: ${inner.reduceRight((rest, each) => `{ ${each}: ${rest} }`, value)}`;
  const last = map.items.at(-1);
  if (last === undefined) {
    const start = map.range![0] + 1;
    return `${text.slice(0, start)} ${entry} ${text.slice(start)}`;
  }
  if (map.flow) {
    const end = endOf((last.value ?? last.key) as Node);
    return `${text.slice(0, end)}, ${entry}${text.slice(end)}`;
  }
  // after the line of the last value, whose end may be a comment
  const lineEnd = text.indexOf("\n", endOf(map) - 1);
  const end = lineEnd === -1 ? text.length : lineEnd;
  return `${text.slice(0, end)}\n${" ".repeat(columnOf(text, map))}${entry}${text.slice(end)}`;
}

/** Offset after the last character of a value, without comments. */
function endOf(node: Node): number {
  const last = isCollection(node) && !node.flow ? node.items.at(-1) : undefined;
  if (last === undefined) return node.range![1];
  return endOf((isPair(last) ? (last.value ?? last.key) : last) as Node);
}

function columnOf(text: string, map: YAMLMap<Node, Node | null>): number {
  const start = map.items[0]!.key.range![0];
  return start - text.lastIndexOf("\n", start) - 1;
}
