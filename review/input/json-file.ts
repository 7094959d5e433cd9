import type { z } from "zod";
import { rule, valueAt } from "../../contract/issue-lines.ts";
import { ReviewError } from "./review-error.ts";

/** Maximum nesting depth; deeper input is rejected. */
const maxDepth = 100;

/**
 * Validates a value with a schema.
 *
 * @throws {ReviewError} with the path and the rule in one line, without the content, which may contain secrets.
 */
export function validated<T extends z.ZodType>(
  schema: T,
  value: unknown,
  fileName: string,
): z.infer<T> {
  const { data, error } = schema.safeParse(value);
  const [issue] = error?.issues ?? [];
  if (issue === undefined) return data as z.infer<T>;
  const where = issue.path.map(String).join(".") || "the document";
  const problem =
    valueAt(value, issue.path) === undefined
      ? "is required"
      : rule(issue).replace(/ of settings$/, "");
  throw new ReviewError(`${fileName}: ${where} ${problem}`);
}

/**
 * Parses a JSON file.
 *
 * @throws {ReviewError} with the position of the error in one line, without the content.
 */
export function parseJson(text: string, fileName: string): unknown {
  const content = withoutWrapper(text.replace(/^\uFEFF/, ""));
  if (content.startsWith("PK")) {
    throw new ReviewError(
      `${fileName}: must be JSON, got a binary plan; run: terraform show -json PLAN > plan.json`,
    );
  }
  if (content.trim() === "") throw new ReviewError(`${fileName}: must be JSON, got an empty file`);
  if (/^\s*\{"@level"/.test(content)) {
    throw new ReviewError(
      `${fileName}: must be the output of 'terraform show -json PLAN', got the log of 'terraform plan -json'`,
    );
  }
  let value: unknown;
  try {
    value = JSON.parse(content);
    if (/\d[\d.eE+-]{15}|\d[eE][+-]?\d{3}/.test(content))
      value = JSON.parse(withNumbersAsWritten(content));
  } catch (error) {
    // the original message quotes the text, which may contain a secret
    const message = error instanceof Error ? error.message : "";
    if (message.includes("after JSON"))
      throw new ReviewError(`${fileName}: must be one JSON document, got text after its end`);
    const isTruncated = /end of JSON input|Unterminated|Expected .* or/i.test(message);
    const at = /position (\d+)/.exec(message)?.[1] ?? String(isTruncated ? content.length : 0);
    const position = at === "0" ? "" : ` at character ${at}`;
    throw new ReviewError(
      Number(at) >= content.trimEnd().length - 1
        ? `${fileName}: must be JSON, got JSON truncated at character ${content.length}: copy or create the file again`
        : `${fileName}: must be JSON, got invalid JSON${position}`,
    );
  }
  if (tooDeep(value)) {
    throw new ReviewError(`${fileName}: must not be nested deeper than ${maxDepth} levels`);
  }
  return value;
}

/** Removes the command and the workflow commands that the wrapper of GitHub's `setup-terraform` prints around the output; no line of JSON starts like them. */
function withoutWrapper(text: string): string {
  return text.replace(/^(\[command\]|::)[^\n]*\n/gm, "").replace(/^::.*/ms, "");
}

/** Quotes the numbers of a valid JSON text that a double cannot represent, such as integers above 2^53, so that all their digits count. */
function withNumbersAsWritten(json: string): string {
  return json.replaceAll(/"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (token) =>
    token.startsWith('"') || isExact(token) ? token : `"${token}"`,
  );
}

function isExact(written: string): boolean {
  const value = Number(written);
  if (String(value) === written) return true;
  const [mantissa = "", exponent = "0"] = written.split(/e/i);
  const digits = mantissa.replaceAll(/[-.]/g, "").replace(/^0+/, "");
  // a double represents 15 digits and exponents up to 308
  return digits.length <= 15 && Math.abs(Number(exponent)) < 290;
}

/** Iterative, because recursion could exhaust the stack. */
function tooDeep(value: unknown): boolean {
  let level: object[] = typeof value === "object" && value !== null ? [value] : [];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > maxDepth) return true;
    const next: object[] = [];
    for (const item of level) {
      for (const key in item) {
        const inner = (item as Readonly<Record<string, unknown>>)[key];
        if (typeof inner === "object" && inner !== null) next.push(inner);
      }
    }
    level = next;
  }
  return false;
}
