import { type Document, LineCounter, parseDocument, visit } from "yaml";
import { SettingsError } from "./settings-error.ts";

/** Control characters that text does not contain. */
const binary = /[^\P{Cc}\t\n\r]/u;

/**
 * Value of a YAML document that JSON can express.
 *
 * @param file - Name of the file, for messages.
 * @throws {SettingsError}
 */
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

/** Message of an error; that of several documents names a function of the parser. */
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
