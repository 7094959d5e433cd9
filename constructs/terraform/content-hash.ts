import { expression } from "./expression.ts";

export interface ContentHashProps {
  /** Folder, relative to the Terraform root module. */
  readonly folder: string;
  /** Files in the folder, as patterns of Terraform's `fileset`. */
  readonly files: readonly string[];
  /**
   * Files to leave out, as a regular expression of Terraform's `regexall`.
   *
   * @default - none
   */
  readonly ignored?: string;
  /**
   * Further strings to hash.
   *
   * @default - none
   */
  readonly more?: readonly string[];
}

/**
 * Terraform expression, without `${}`, of the first 12 digits of a hash of file contents and paths. Terraform computes the
 * hash, so that the synthesized JSON does not change with the files.
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
