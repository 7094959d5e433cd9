/**
 * Protobuf's text format, as `config.pbtxt` is written in: text to tree and tree to text. What the names mean is the
 * business of a schema; here are only tokens and nesting.
 * Grammar: https://protobuf.dev/reference/protobuf/textformat-spec/ (no extensions and no `Any`, which Triton has none of).
 */

export interface PbtxtPosition {
  /** From 1. */
  readonly line: number;
  /** From 1, in UTF-16 units. */
  readonly column: number;
}

export type PbtxtValue =
  | {
      readonly kind: "identifier";
      readonly text: string;
      readonly at: PbtxtPosition;
    }
  | {
      /** As written, sign included: `-1`, `0x1F`, `1.5e3f`. */
      readonly kind: "number";
      readonly text: string;
      readonly at: PbtxtPosition;
    }
  | {
      /** Escapes resolved, neighbours joined. */
      readonly kind: "string";
      readonly text: string;
      readonly at: PbtxtPosition;
    }
  | {
      readonly kind: "message";
      readonly fields: readonly PbtxtField[];
      readonly at: PbtxtPosition;
    }
  | {
      readonly kind: "list";
      readonly items: readonly PbtxtValue[];
      readonly at: PbtxtPosition;
    };

export interface PbtxtField {
  readonly name: string;
  readonly value: PbtxtValue;
  readonly at: PbtxtPosition;
}

/** What is wrong, and where: `config.pbtxt:3:7: expected a value, got '}'`. */
export class PbtxtError extends Error {
  override readonly name = "PbtxtError";

  constructor(
    readonly file: string,
    readonly at: PbtxtPosition,
    readonly problem: string,
  ) {
    super(`${file}:${at.line}:${at.column}: ${problem}`);
  }
}

/** How deep messages may be nested, so that a hostile file cannot exhaust the stack. */
const maxDepth = 64;

/**
 * Read a text-format file.
 *
 * @param file - Name for messages.
 * @throws {PbtxtError} at the first mistake.
 */
export function parsePbtxt(text: string, file: string): readonly PbtxtField[] {
  const parser = new Parser(text, file);
  return parser.fields(undefined, 0);
}

/** Print fields, one a line, indented by two spaces. Lists are printed on one line when they fit. */
export function printPbtxt(fields: readonly PbtxtField[]): string {
  return fields.map((field) => printField(field, "")).join("");
}

function printField({ name, value }: PbtxtField, indent: string): string {
  const nested = value.kind === "message" || (value.kind === "list" && hasMessage(value.items));
  const colon = nested ? "" : ":";
  return `${indent}${name}${colon} ${printValue(value, indent, indent.length + name.length + 2)}\n`;
}

function printValue(value: PbtxtValue, indent: string, column: number): string {
  switch (value.kind) {
    case "identifier":
    case "number":
      return value.text;
    case "string":
      return quote(value.text);
    case "message": {
      if (value.fields.length === 0) return "{ }";
      if (isPlainEntry(value.fields)) {
        const [key, content] = value.fields.map((field) => printField(field, "").trimEnd());
        return `{ ${key}, ${content} }`;
      }
      const inner = value.fields.map((field) => printField(field, `${indent}  `)).join("");
      return `{\n${inner}${indent}}`;
    }
    case "list": {
      const items = value.items.map((item) => printValue(item, `${indent}  `, 0));
      const line = `[${items.join(", ")}]`;
      if (!hasMessage(value.items) && column + line.length <= 100) return line;
      return `[\n${items.map((item) => `${indent}  ${item}`).join(",\n")}\n${indent}]`;
    }
  }
}

/** An entry of a map from string to string: short enough for one line. */
function isPlainEntry(fields: readonly PbtxtField[]): boolean {
  const [key, content] = fields;
  return (
    fields.length === 2 &&
    key?.name === "key" &&
    content?.name === "value" &&
    fields.every(({ value }) => value.kind !== "message" && value.kind !== "list")
  );
}

function hasMessage(items: readonly PbtxtValue[]): boolean {
  return items.some((item) => item.kind === "message");
}

/** A string in double quotes, with what is not printable as escapes. */
function quote(text: string): string {
  let quoted = "";
  for (const char of text) {
    const code = char.codePointAt(0) ?? 0;
    const short = printedEscapes[char];
    if (short !== undefined) quoted += short;
    else if (code < 0x20 || code === 0x7f) quoted += `\\${code.toString(8).padStart(3, "0")}`;
    else quoted += char;
  }
  return `"${quoted}"`;
}

const printedEscapes: Readonly<Record<string, string>> = {
  '"': '\\"',
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
};

const simpleEscapes: Readonly<Record<string, number>> = {
  a: 7,
  b: 8,
  f: 12,
  n: 10,
  r: 13,
  t: 9,
  v: 11,
  "?": 63,
  "\\": 92,
  "'": 39,
  '"': 34,
};

/** What opens a message, and what closes it. */
const closing: Readonly<Record<string, string>> = { "{": "}", "<": ">" };

const identifierPattern = /[A-Za-z_][A-Za-z0-9_]*/y;
const numberPattern = /0[xX][0-9A-Fa-f]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?/y;
const blankPattern = /(?:[ \t\r\n\v\f]+|#[^\n]*)*/y;

class Parser {
  #offset = 0;
  readonly #text: string;
  readonly #file: string;
  /** Offset of each line's first character. */
  readonly #lineStarts: readonly number[];

  constructor(text: string, file: string) {
    this.#text = text;
    this.#file = file;
    this.#lineStarts = [0, ...Array.from(text.matchAll(/\n/g), (match) => match.index + 1)];
  }

  /** Fields up to `close`, or to the end of the text. */
  fields(close: string | undefined, depth: number): PbtxtField[] {
    const fields: PbtxtField[] = [];
    for (;;) {
      this.#skipBlank();
      if (this.#offset === this.#text.length) {
        if (close === undefined) return fields;
        throw this.#unexpected(`'${close}'`);
      }
      if (close !== undefined && this.#take(close)) return fields;
      fields.push(this.#field(depth));
      this.#skipBlank();
      if (!this.#take(",")) this.#take(";");
    }
  }

  #field(depth: number): PbtxtField {
    const start = this.#offset;
    const name = this.#match(identifierPattern);
    if (name === undefined) throw this.#unexpected("a field name");
    const at = this.#position(start);
    this.#skipBlank();
    const colon = this.#take(":");
    this.#skipBlank();
    const next = this.#text[this.#offset] ?? "";
    if (!colon && !(next in closing) && next !== "[") {
      throw this.#unexpected(`':' or '{' after '${name}'`);
    }
    const value = this.#value(depth, true);
    if (!colon && value.kind === "list" && value.items.some((item) => item.kind !== "message")) {
      throw new PbtxtError(this.#file, value.at, `expected ':' after '${name}', got '['`);
    }
    return { name, value, at };
  }

  #value(depth: number, listAllowed: boolean): PbtxtValue {
    this.#skipBlank();
    const start = this.#offset;
    const at = this.#position(start);
    const first = this.#text[start] ?? "";
    const close = closing[first];
    if (close !== undefined) {
      if (depth >= maxDepth) {
        throw this.#error(start, `messages must not be nested deeper than ${maxDepth}`);
      }
      this.#offset += 1;
      return { kind: "message", fields: this.fields(close, depth + 1), at };
    }
    if (first === "[" && listAllowed) return { kind: "list", items: this.#list(depth), at };
    if (first === '"' || first === "'") return { kind: "string", text: this.#string(), at };

    const sign = this.#take("-") ? "-" : "";
    if (sign !== "") this.#skipBlank();
    const number = this.#match(numberPattern);
    if (number !== undefined) {
      if (/[A-Za-z0-9_.]/.test(this.#text[this.#offset] ?? "")) {
        throw this.#error(start, `'${this.#word(start)}' is not a number`);
      }
      return { kind: "number", text: sign + number, at };
    }
    const word = this.#match(identifierPattern);
    if (word !== undefined) {
      if (sign === "") return { kind: "identifier", text: word, at };
      if (/^(inf|infinity|nan)$/i.test(word)) return { kind: "number", text: sign + word, at };
    }
    this.#offset = start;
    throw this.#unexpected("a value");
  }

  #list(depth: number): PbtxtValue[] {
    this.#offset += 1;
    const items: PbtxtValue[] = [];
    this.#skipBlank();
    if (this.#take("]")) return items;
    for (;;) {
      items.push(this.#value(depth, false));
      this.#skipBlank();
      if (this.#take("]")) return items;
      if (!this.#take(",")) throw this.#unexpected("',' or ']'");
    }
  }

  /** One string, or several next to each other. */
  #string(): string {
    const start = this.#offset;
    const bytes: number[] = [];
    for (;;) {
      const quoteMark = this.#text[this.#offset] ?? "";
      if (quoteMark !== '"' && quoteMark !== "'") break;
      this.#stringPart(quoteMark, bytes);
      this.#skipBlank();
    }
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
        Uint8Array.from(bytes),
      );
    } catch {
      throw this.#error(start, "a string must be valid UTF-8");
    }
  }

  #stringPart(quoteMark: string, bytes: number[]): void {
    const start = this.#offset;
    this.#offset += 1;
    for (;;) {
      const code = this.#text.codePointAt(this.#offset);
      if (code === undefined || code === 10) {
        throw this.#error(start, "the string is not closed on its line");
      }
      const char = String.fromCodePoint(code);
      if (char === "\\") {
        bytes.push(...this.#escape());
      } else {
        this.#offset += char.length;
        if (char === quoteMark) return;
        if (code < 0x80) bytes.push(code);
        else bytes.push(...new TextEncoder().encode(char));
      }
    }
  }

  #escape(): Iterable<number> {
    const start = this.#offset;
    this.#offset += 1;
    const letter = this.#text[this.#offset] ?? "";
    const simple = simpleEscapes[letter];
    if (simple !== undefined) {
      this.#offset += 1;
      return [simple];
    }
    const octal = this.#match(/[0-7]{1,3}/y);
    if (octal !== undefined) return [this.#byte(start, Number.parseInt(octal, 8))];
    const hex = this.#match(/[xX][0-9A-Fa-f]{1,2}/y);
    if (hex !== undefined) return [Number.parseInt(hex.slice(1), 16)];
    const unicode = this.#match(/u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}/y);
    if (unicode !== undefined) {
      const code = Number.parseInt(unicode.slice(1), 16);
      if (code <= 0x10ffff && (code < 0xd800 || code > 0xdfff)) {
        return new TextEncoder().encode(String.fromCodePoint(code));
      }
    }
    throw this.#error(start, `'\\${letter}' is not an escape`);
  }

  #byte(offset: number, value: number): number {
    if (value > 0xff) {
      throw this.#error(offset, `an octal escape must be at most \\377, got ${value}`);
    }
    return value;
  }

  #take(char: string): boolean {
    if (this.#text[this.#offset] !== char) return false;
    this.#offset += 1;
    return true;
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#offset;
    const found = pattern.exec(this.#text)?.[0];
    if (found !== undefined) this.#offset += found.length;
    return found;
  }

  #skipBlank(): void {
    this.#match(blankPattern);
  }

  #word(offset: number): string {
    return /^[^\s,;:{}<>[\]]+/.exec(this.#text.slice(offset, offset + 40))?.[0] ?? "";
  }

  #unexpected(expected: string): PbtxtError {
    const rest = this.#text.slice(this.#offset, this.#offset + 40);
    const got = this.#word(this.#offset) || rest.slice(0, 1);
    return this.#error(
      this.#offset,
      `expected ${expected}, got ${got === "" ? "the end of the file" : `'${got}'`}`,
    );
  }

  #error(offset: number, problem: string): PbtxtError {
    return new PbtxtError(this.#file, this.#position(offset), problem);
  }

  #position(offset: number): PbtxtPosition {
    let [first, last] = [0, this.#lineStarts.length - 1];
    while (first < last) {
      const middle = Math.ceil((first + last) / 2);
      if (this.#lineStarts[middle]! <= offset) first = middle;
      else last = middle - 1;
    }
    return { line: first + 1, column: offset - this.#lineStarts[first]! + 1 };
  }
}
