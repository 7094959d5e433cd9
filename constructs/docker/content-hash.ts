import { expression } from "../expression.ts";

export interface ContentHashProps {
  /** Folder, as Terraform is told. */
  readonly folder: string;
  /** Files in it: patterns of Terraform's `fileset`. */
  readonly files: readonly string[];
  /** Files that do not count: an expression of Terraform's `regexall`. */
  readonly ignored?: string;
  /** What else belongs to the content. */
  readonly more?: readonly string[];
}

/**
 * Twelve digits of a hash of files, their paths included. It is an expression, without `${}`: Terraform computes it, so that
 * the synthesized text does not change with the files.
 */
export function contentHash({ folder, files, ignored, more = [] }: ContentHashProps): string {
  const sets = files.map((pattern) => `fileset("${folder}", "${pattern}")`).join(", ");
  const file = expression("file");
  const each = `"${file} ${expression(`filesha256("${folder}/${file}")`)}"`;
  const condition = ignored === undefined ? "" : ` if length(regexall("${ignored}", file)) == 0`;
  const list = `[for file in sort(setunion(${sets})) : ${each}${condition}]`;
  const others = more.map((part) => `"${part}"`).join(", ");
  return `substr(sha256(join("\\n", concat(${list}, [${others}]))), 0, 12)`;
}
