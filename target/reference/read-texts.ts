import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { maxTextLength } from "../../contract/embed-api.ts";
import { textTowerOf } from "../../contract/model-shapes.ts";
import { readFailure } from "../../contract/read-failure.ts";
import { UserError } from "../../contract/user-error.ts";
import { tokenRows } from "../../inference/session/token-tensor.ts";
import { openTokenizer } from "../../inference/text/tokenizer.ts";
import type { LoadText } from "../requests/load-items.ts";
import type { ReferenceModel } from "./reference.ts";

/** Maximum number of texts, as of images. */
const maxTexts = 64;

/** Reads the texts of a file: one per line, without empty lines, the first 64. */
export function readTexts(file: string): readonly string[] {
  let content: string;
  try {
    content = readFileSync(file, "utf8");
  } catch (error) {
    throw new UserError(`--texts: ${file} ${readFailure(error)}`);
  }
  const texts = content
    .split(/\r?\n/)
    .filter((line) => line.trim() !== "")
    .slice(0, maxTexts);
  if (texts.length === 0) throw new UserError(`--texts: ${file} has no text`);
  const tooLong = texts.findIndex(({ length }) => length > maxTextLength);
  if (tooLong < 0) return texts;
  throw new UserError(
    `--texts: text ${tooLong + 1} of ${file} must be at most ${maxTextLength} characters, got ${texts[tooLong]?.length}`,
  );
}

/** Texts with their token ids. */
export async function tokenizedTexts(
  { spec, file }: Pick<ReferenceModel, "spec" | "file">,
  texts: readonly string[],
): Promise<readonly LoadText[]> {
  const { input } = textTowerOf(spec);
  const tokenizer = await openTokenizer(input, join(dirname(file), input.tokenizer.file));
  const rows = tokenRows(tokenizer.encode(texts));
  return rows.map((ids, i) => ({ text: texts[i] ?? "", ids }));
}
