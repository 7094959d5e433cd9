import { readdirSync, readFileSync } from "node:fs";
import { type Document, LineCounter, parseDocument, visit } from "yaml";
import type { z } from "zod";
import { issueLines } from "../../contract/issue-lines.ts";
import { SettingsError } from "./settings-error.ts";
import type { ValidSettings } from "./valid-settings.ts";

/** Files with settings of users: environments and model specs. */

/** Environment or model whose file is invalid, and the reasons. */
export interface RejectedFile {
  readonly name: string;
  readonly lines: readonly string[];
  /** @default - too little of an environment is valid, or it is a model */
  readonly valid?: ValidSettings | undefined;
}

/** Returns whether a YAML value is a map. */
export function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Reads a settings file. */
export function readText(file: string): string {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "unknown";
    throw new SettingsError([`${file}: cannot be read (${code})`]);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new SettingsError([`${file}: must be UTF-8 text`]);
  }
}

/**
 * Names of the YAML files in a folder, sorted.
 *
 * @param contentNoun - What the folder contains, as a plural noun in the error message, such as
 *   "environments".
 */
export function yamlFileNames(folder: string, contentNoun: string): readonly string[] {
  try {
    return readdirSync(folder)
      .filter((entry) => !entry.startsWith(".") && /\.ya?ml$/.test(entry))
      .sort();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new SettingsError([`${folder}: cannot be read as a folder of ${contentNoun} (${code})`]);
  }
}

/** Control characters that text does not contain. */
const binary = /[^\P{Cc}\t\n\r]/u;

/** Value of a YAML document that JSON can express. */
export function parseYaml(file: string, yaml: string): unknown {
  if (binary.test(yaml)) {
    throw new SettingsError([`${file}: must be UTF-8 text, without control characters`]);
  }
  const lineCounter = new LineCounter();
  const document = parseDocument(yaml, { lineCounter, prettyErrors: false, logLevel: "error" });
  // a warning, such as an unknown tag, means that a part of the file was not interpreted
  const errors = [...document.errors, ...document.warnings, ...unresolvedAliases(document)];
  if (errors.length > 0) {
    throw new SettingsError(
      errors.map((error) => {
        const { line, col } = lineCounter.linePos(error.pos[0]);
        return `${file}:${line}:${col}: ${messageOf(error)}`;
      }),
    );
  }
  try {
    const value: unknown = document.toJS();
    JSON.stringify(value); // throws if an alias is inside its own anchor
    return value;
  } catch {
    throw new SettingsError([`${file}: has aliases that grow without bound`]);
  }
}

/** Returns the message of a YAML error. The message for several documents is replaced, because the one of the parser names a function. */
function messageOf(error: { readonly code?: string; readonly message: string }): string {
  return error.code === "MULTIPLE_DOCS"
    ? "must be one YAML document, got another one after '---'"
    : error.message;
}

/** Aliases that have no anchor before them. */
function unresolvedAliases(document: Document) {
  const found: { readonly pos: readonly [number]; readonly message: string }[] = [];
  visit(document, {
    Alias(_key, alias) {
      if (alias.resolve(document) !== undefined) return;
      const message = `alias '*${alias.source}' must come after its anchor '&${alias.source}'`;
      found.push({ pos: [alias.range?.[0] ?? 0], message });
    },
  });
  return found;
}

/** Value of a settings file, with defaults filled in. */
export function validateSettings<Schema extends z.ZodType>(
  schema: Schema,
  file: string,
  input: unknown,
): z.output<Schema> {
  const result = schema.safeParse(input);
  if (!result.success) {
    const lines = issueLines(result.error.issues, schema, input);
    throw new SettingsError([`${file}:`, ...lines.map((line) => `  ${line}`)]);
  }
  return result.data;
}
