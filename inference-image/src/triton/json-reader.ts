import { isUtf8 } from "node:buffer";
import { TensorData, WireError } from "./wire.ts";

/** Divides long work into turns, so that other requests are answered in between. */
export interface Pace {
  /** Whether the turn is over: then `next` is to be awaited. */
  readonly over: boolean;
  next(): Promise<void>;
}

/** How deep objects and arrays may be nested: Triton's limit. */
const maxDepth = 100;

/** Values of a request beside the elements of its tensors. A request has some tens of them. */
const maxValues = 100_000;

/** Steps between two looks at the clock, and numbers that a step may read. */
const stepsPerLook = 128;
const numbersPerStep = 64;

/** What may come next inside a list. */
type Expected = "first" | "comma" | "value";

interface Frame {
  /** What is filled: an object, or an array. */
  readonly target: Record<string, unknown> | unknown[];
  expected: Expected;
}

interface ElementsFrame {
  readonly elements: TensorData;
  /** Arrays that are open. */
  depth: number;
  expected: Expected;
}

/**
 * Reads JSON piece by piece, and the elements of tensors (the arrays that are the `data` of an object) into flat memory
 * of their own: 64 MiB of numbers are neither a pause of seconds nor gigabytes of arrays.
 */
export class JsonReader {
  readonly #bytes: Buffer;
  #at = 0;
  #values = 0;
  readonly #stack: Frame[] = [];
  #root: { readonly value: unknown } | undefined;
  /** The elements that are being read. */
  #data: ElementsFrame | undefined;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** @throws {WireError} */
  readAll(): unknown {
    while (!this.#run(() => false)) {
      // one run goes to the end
    }
    return this.#root?.value;
  }

  /** @throws {WireError} */
  async read(pace: Pace): Promise<unknown> {
    while (!this.#run(() => pace.over)) await pace.next();
    return this.#root?.value;
  }

  /** @returns Whether all was read. */
  #run(over: () => boolean): boolean {
    for (let count = 1; ; count += 1) {
      if (count % stepsPerLook === 0 && over()) return false;
      if (this.#data !== undefined) {
        this.#element(this.#data);
        continue;
      }
      const frame = this.#stack.at(-1);
      if (frame !== undefined) {
        this.#member(frame);
      } else if (this.#root === undefined) {
        this.#value((value) => {
          this.#root = { value };
        });
      } else {
        if (this.#next() !== undefined) throw this.#unexpected();
        return true;
      }
    }
  }

  /** One step in an object or an array. */
  #member(frame: Frame): void {
    const { target } = frame;
    const isArray = Array.isArray(target);
    const byte = this.#next();
    if (byte === (isArray ? closeBracket : closeBrace) && frame.expected !== "value") {
      this.#at += 1;
      this.#stack.pop();
      return;
    }
    if (frame.expected === "comma") {
      if (byte !== comma) throw this.#unexpected();
      this.#at += 1;
      frame.expected = "value";
      return;
    }
    frame.expected = "comma";
    if (isArray) {
      this.#value((value) => target.push(value));
      return;
    }
    if (byte !== quote) throw this.#unexpected();
    const key = this.#string();
    if (this.#next() !== colon) throw this.#unexpected();
    this.#at += 1;
    if (key === "data" && this.#next() === openBracket) {
      this.#at += 1;
      const elements = new TensorData();
      target[key] = elements;
      this.#data = { elements, depth: 1, expected: "first" };
      this.#checkDepth();
      return;
    }
    this.#value((value) => {
      target[key] = value;
    });
  }

  /** One step in the elements of a tensor. */
  #element(data: ElementsFrame): void {
    const byte = this.#next();
    if (byte === closeBracket && data.expected !== "value") {
      this.#at += 1;
      data.depth -= 1;
      data.expected = "comma";
      if (data.depth === 0) this.#data = undefined;
      return;
    }
    if (data.expected === "comma") {
      if (byte !== comma) throw this.#unexpected();
      this.#at += 1;
      data.expected = "value";
      return;
    }
    if (byte === openBracket) {
      this.#at += 1;
      data.depth += 1;
      data.expected = "first";
      this.#checkDepth();
      return;
    }
    data.expected = "comma";
    if (byte === openBrace) throw this.#unexpected();
    if (byte === minus || isDigit(byte)) this.#numbers(data.elements);
    else data.elements.push(this.#scalar(byte));
  }

  /** At a number: this one, and those that follow it with nothing but a comma between them. */
  #numbers(elements: TensorData): void {
    const bytes = this.#bytes;
    for (let count = 1; ; count += 1) {
      elements.pushNumber(this.#number());
      const next = bytes[this.#at] === comma ? bytes[this.#at + 1] : undefined;
      if (count === numbersPerStep || !(next === minus || isDigit(next))) return;
      this.#at += 1;
    }
  }

  /** @param keep - Told of the value; an object or array is filled afterwards. */
  #value(keep: (value: unknown) => void): void {
    this.#values += 1;
    if (this.#values > maxValues) {
      throw new WireError(
        `failed to parse JSON: more than ${maxValues} values beside the elements of tensors`,
      );
    }
    const byte = this.#next();
    if (byte === openBrace || byte === openBracket) {
      this.#at += 1;
      // no prototype: `__proto__` is a key like any other
      const target = byte === openBrace ? Object.create(null) : [];
      keep(target);
      this.#stack.push({ target, expected: "first" });
      this.#checkDepth();
      return;
    }
    keep(byte === minus || isDigit(byte) ? this.#number() : this.#scalar(byte));
  }

  #scalar(byte: number | undefined): unknown {
    if (byte === quote) return this.#string();
    for (const [word, value] of words) {
      if (this.#bytes.toString("latin1", this.#at, this.#at + word.length) !== word) continue;
      this.#at += word.length;
      return value;
    }
    throw this.#unexpected();
  }

  /** At a quote. */
  #string(): string {
    const bytes = this.#bytes;
    const start = this.#at;
    let end = start;
    for (let escaped = true; escaped; ) {
      end = bytes.indexOf(quote, end + 1);
      if (end < 0) {
        this.#at = bytes.length;
        throw this.#unexpected();
      }
      let slashes = 0;
      while (bytes[end - 1 - slashes] === backslash) slashes += 1;
      escaped = slashes % 2 === 1;
    }
    const raw = bytes.subarray(start, end + 1);
    if (!isUtf8(raw)) throw new WireError("failed to parse JSON: a string is not UTF-8");
    try {
      const text = JSON.parse(raw.toString("utf8")) as string;
      this.#at = end + 1;
      return text;
    } catch {
      throw new WireError(`failed to parse JSON: a string at offset ${start} is not valid`);
    }
  }

  /**
   * At a digit or a minus. Up to 15 digits and a small exponent are exact in double arithmetic; what has more is read by
   * the language.
   */
  #number(): number {
    const bytes = this.#bytes;
    const start = this.#at;
    let at = start;
    const negative = bytes[at] === minus;
    if (negative) at += 1;
    let mantissa = 0;
    const first = at;
    while (isDigit(bytes[at])) mantissa = mantissa * 10 + bytes[at++]! - zero;
    let digits = at - first;
    // a leading zero stands alone
    if (digits === 0 || (digits > 1 && bytes[first] === zero)) throw this.#unexpected(at);
    let exponent = 0;
    if (bytes[at] === dot) {
      const fraction = at + 1;
      for (at = fraction; isDigit(bytes[at]); at += 1) {
        mantissa = mantissa * 10 + bytes[at]! - zero;
      }
      exponent = fraction - at;
      digits -= exponent;
      if (exponent === 0) throw this.#unexpected(at);
    }
    let written = 0;
    if (bytes[at] === lowerE || bytes[at] === upperE) {
      at += 1;
      const sign = bytes[at];
      if (sign === plus || sign === minus) at += 1;
      const power = at;
      while (isDigit(bytes[at])) written = Math.min(10_000, written * 10 + bytes[at++]! - zero);
      if (at === power) throw this.#unexpected(at);
      if (sign === minus) written = -written;
    }
    this.#at = at;
    exponent += written;
    if (digits > 15 || exponent < -22 || exponent > 22) {
      return Number(bytes.toString("latin1", start, at));
    }
    const value = exponent < 0 ? mantissa / tens[-exponent]! : mantissa * tens[exponent]!;
    return negative ? -value : value;
  }

  /** The next byte that is not white space; it is not taken. */
  #next(): number | undefined {
    for (;;) {
      const byte = this.#bytes[this.#at];
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return byte;
      this.#at += 1;
    }
  }

  #checkDepth(): void {
    if (this.#stack.length + (this.#data?.depth ?? 0) <= maxDepth) return;
    throw new WireError(
      `failed to parse JSON: JSON nesting depth exceeds maximum allowed limit (${maxDepth})`,
    );
  }

  #unexpected(at: number = this.#at): WireError {
    const byte = this.#bytes[at];
    const what =
      byte === undefined
        ? "it ends early"
        : `unexpected ${JSON.stringify(String.fromCharCode(byte))} at offset ${at}`;
    return new WireError(`failed to parse JSON: ${what}`);
  }
}

const words: readonly (readonly [string, unknown])[] = [
  ["true", true],
  ["false", false],
  ["null", null],
];

const [quote, backslash, comma, colon, dot, minus, plus, zero] = [...'"\\,:.-+0'].map((text) =>
  text.charCodeAt(0),
) as [number, number, number, number, number, number, number, number];
const [openBrace, closeBrace, openBracket, closeBracket, lowerE, upperE] = [..."{}[]eE"].map(
  (text) => text.charCodeAt(0),
) as [number, number, number, number, number, number];

const tens = Array.from({ length: 23 }, (_, exponent) => Number(`1e${exponent}`));

function isDigit(byte: number | undefined): byte is number {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39;
}
