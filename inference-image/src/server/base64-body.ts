import { maxImagesPerRequest } from "../contract/embed-api.ts";
import { EmbedError, tooManyImages } from "./errors.ts";
import { turns } from "./turns.ts";

/** Bytes that are searched or decoded in one go: a fraction of a millisecond. A multiple of 4. */
const pieceBytes = 64 * 1024;
/** Bytes in which one character is searched in one go. */
const windowBytes = 1024 * 1024;
/** Deeper nesting is refused. Nothing in a right body is nested at all. */
const maxDepth = 512;
/** The longest number, and the longest white space, that is read. */
const maxNumberLength = 1_000;
const maxSpaceLength = 1024 * 1024;
/** A string is looked for byte by byte before it is searched: that is faster for short ones. */
const shortLength = 32;
/** How many values are read before the time is looked at. */
const valuesInPiece = 1024;
/** Of unknown fields, how many are named, and how much of each name. */
const shownFields = 5;
const shownCharacters = 60;

/**
 * The image files of a body of `POST /embed/base64`.
 *
 * It says yes and no as `JSON.parse` and the schema `embedBase64Request` do, without their costs: the body never becomes
 * a string or an object, the event loop is never held for long, and the files are decoded where they are.
 *
 * @param body - JSON in UTF-8. It is taken over: the files are views of its memory.
 * @throws {EmbedError}
 */
export async function imagesOfBase64Body(body: Buffer): Promise<readonly Uint8Array[]> {
  if (body.length === 0) throw new EmbedError("bad_request", "the body is empty");
  const shape = await new Scanner(body, false).read();
  const mistake = mistakeIn(shape);
  if (mistake !== undefined || shape.repeated) {
    // is it JSON at all? What is in the strings was not looked at
    await new Scanner(body, true).read();
  }
  if (mistake !== undefined) throw mistake;
  const images: Uint8Array[] = [];
  for (const [index, element] of (shape.images?.first ?? []).entries()) {
    images.push(await decode(body, element as Text, index));
  }
  return images;
}

/** What a value of JSON is, in the words of the schema's messages. */
type Kind = "object" | "array" | "string" | "number" | "boolean" | "null";

/** A string: the bytes between its quotes. */
interface Text {
  readonly kind: "string";
  readonly from: number;
  readonly to: number;
  /** Whether it has a backslash. */
  readonly escaped: boolean;
}

type Element = Text | { readonly kind: Exclude<Kind, "string"> };

/** As much of a body's shape as decides whether it is right. */
interface Shape {
  readonly kind: Kind;
  /** The value of `images`, the last one where there are several. */
  readonly images: Images | undefined;
  /** Whether a value of `images` was given and then replaced: nobody looked into it. */
  readonly repeated: boolean;
  /** The first fields that are not known. */
  readonly unknown: readonly string[];
}

interface Images {
  readonly kind: Kind;
  readonly count: number;
  /** One more than may be. */
  readonly first: readonly Element[];
}

/** The first mistake, in the order of the schema's. */
function mistakeIn({ kind, images, unknown }: Shape): EmbedError | undefined {
  const wrong = (message: string, image?: number) => new EmbedError("bad_request", message, image);
  if (kind !== "object") {
    return wrong(`the body: invalid input: expected object, received ${kind}`);
  }
  if (images?.kind !== "array") {
    return wrong(`images: invalid input: expected array, received ${images?.kind ?? "undefined"}`);
  }
  if (images.count === 0) return wrong("images: too small: expected array to have >=1 items");
  if (images.count > maxImagesPerRequest) return tooManyImages(String(images.count));
  for (const [index, element] of images.first.entries()) {
    if (element.kind !== "string") {
      const message = `images.${index}: invalid input: expected string, received ${element.kind}`;
      return wrong(message, index);
    }
    if (element.from === element.to) {
      return wrong(`images.${index}: too small: expected string to have >=1 characters`, index);
    }
  }
  if (unknown.length > 0) {
    const names = unknown.slice(0, shownFields).map((name) => JSON.stringify(name));
    if (unknown.length > shownFields) names.push("…");
    return wrong(`the body: unrecognized key${unknown.length > 1 ? "s" : ""}: ${names.join(", ")}`);
  }
  return undefined;
}

const quote = 0x22;
const comma = 0x2c;
const minus = 0x2d;
const plus = 0x2b;
const dot = 0x2e;
const slash = 0x2f;
const zero = 0x30;
const nine = 0x39;
const colon = 0x3a;
const openArray = 0x5b;
const backslash = 0x5c;
const closeArray = 0x5d;
const openObject = 0x7b;
const closeObject = 0x7d;

/** What stands for what after a backslash. */
const escapes: Readonly<Record<number, number>> = {
  [quote]: quote,
  [backslash]: backslash,
  [slash]: slash,
  98: 0x08,
  102: 0x0c,
  110: 0x0a,
  114: 0x0d,
  116: 0x09,
};
const unicodeEscape = 0x75;
/** Stands for a character that is not ASCII: none of base64 either. */
const notAscii = 0xff;

const words: readonly { readonly bytes: Buffer; readonly kind: Kind }[] = [
  { bytes: Buffer.from("null"), kind: "null" },
  { bytes: Buffer.from("true"), kind: "boolean" },
  { bytes: Buffer.from("false"), kind: "boolean" },
];

/** Reads the shape of one JSON text. */
class Scanner {
  #at: number;
  /** The first backslash at or after where it was last looked for. */
  #backslash = -1;

  constructor(
    readonly bytes: Buffer,
    /** Whether strings without a backslash are looked into: they must have no control characters. */
    readonly strict: boolean,
  ) {
    const mark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
    this.#at = mark ? 3 : 0;
  }

  /** @throws {EmbedError} when it is not JSON */
  async read(): Promise<Shape> {
    const { bytes } = this;
    let images: Images | undefined;
    let repeated = false;
    const unknown = new Set<string>();
    this.#gap();
    const kind = bytes[this.#at] === openObject ? "object" : await this.#value();
    if (kind === "object") {
      let fields = 0;
      this.#at += 1;
      this.#gap();
      if (bytes[this.#at] === closeObject) this.#at += 1;
      else {
        do {
          if (++fields % valuesInPiece === 0 && turns.over) await turns.next();
          const name = this.#nameOf(this.#shortText() ?? (await this.#text()));
          this.#colon();
          if (name === "images") {
            repeated = images !== undefined;
            images = await this.#images();
          } else {
            // one more than is shown
            if (unknown.size <= shownFields) unknown.add(name);
            await this.#value();
          }
        } while (this.#goesOn(closeObject));
      }
    }
    this.#gap();
    if (this.#at < bytes.length) throw notJson();
    return { kind, images, repeated, unknown: [...unknown] };
  }

  async #images(): Promise<Images> {
    const { bytes } = this;
    if (bytes[this.#at] !== openArray) return { kind: await this.#value(), count: 0, first: [] };
    const first: Element[] = [];
    let count = 0;
    this.#at += 1;
    this.#gap();
    if (bytes[this.#at] === closeArray) this.#at += 1;
    else {
      do {
        if (++count % valuesInPiece === 0 && turns.over) await turns.next();
        const element =
          bytes[this.#at] === quote
            ? (this.#shortText() ?? (await this.#text()))
            : { kind: (await this.#value()) as Exclude<Kind, "string"> };
        if (first.length <= maxImagesPerRequest) first.push(element);
      } while (this.#goesOn(closeArray));
    }
    return { kind: "array", count, first };
  }

  /** As much of a field's name as is shown. */
  #nameOf({ from, to, escaped }: Text): string {
    // each character takes 6 bytes at most
    const shown = Math.min(to, from + 6 * shownCharacters);
    const text = this.bytes.toString("utf8", from, shown);
    const whole = escaped && shown === to ? (JSON.parse(`"${text}"`) as string) : text;
    return whole.slice(0, shownCharacters);
  }

  #colon(): void {
    this.#gap();
    if (this.bytes[this.#at] !== colon) throw notJson();
    this.#at += 1;
    this.#gap();
  }

  /** Whether there is a comma before the end of an object or array; then what follows it is next. */
  #goesOn(close: number): boolean {
    this.#gap();
    const byte = this.bytes[this.#at++];
    if (byte === close) return false;
    if (byte !== comma) throw notJson();
    this.#gap();
    return true;
  }

  /** Any value, skipped. */
  async #value(): Promise<Kind> {
    const { bytes } = this;
    const kind = this.#kind();
    /** How the objects and arrays end that the value is in. */
    const ends: number[] = [];
    for (let values = 1; ; values++) {
      if (values % valuesInPiece === 0 && turns.over) await turns.next();
      const byte = bytes[this.#at];
      if (byte === openObject || byte === openArray) {
        if (ends.length === maxDepth) throw notJson(`it is nested deeper than ${maxDepth}`);
        const end = byte === openObject ? closeObject : closeArray;
        this.#at += 1;
        this.#gap();
        if (bytes[this.#at] !== end) {
          ends.push(end);
          if (end === closeObject) {
            this.#shortText() ?? (await this.#text());
            this.#colon();
          }
          continue;
        }
        this.#at += 1;
      } else if (byte === quote) {
        this.#shortText() ?? (await this.#text());
      } else if (byte === minus || (byte !== undefined && byte >= zero && byte <= nine)) {
        this.#number();
      } else {
        this.#word();
      }
      let end = ends.at(-1);
      while (end !== undefined && !this.#goesOn(end)) {
        ends.pop();
        end = ends.at(-1);
      }
      if (end === undefined) return kind;
      if (end === closeObject) {
        this.#shortText() ?? (await this.#text());
        this.#colon();
      }
    }
  }

  #kind(): Kind {
    const byte = this.bytes[this.#at];
    if (byte === openObject) return "object";
    if (byte === openArray) return "array";
    if (byte === quote) return "string";
    return words.find(({ bytes }) => bytes[0] === byte)?.kind ?? "number";
  }

  #word(): void {
    const { bytes } = this;
    const found = words.find((word) =>
      word.bytes.equals(bytes.subarray(this.#at, this.#at + word.bytes.length)),
    );
    if (found === undefined) throw notJson();
    this.#at += found.bytes.length;
  }

  #number(): void {
    const { bytes } = this;
    const from = this.#at;
    if (bytes[this.#at] === minus) this.#at += 1;
    if (bytes[this.#at] === zero) this.#at += 1;
    else this.#digits();
    if (bytes[this.#at] === dot) {
      this.#at += 1;
      this.#digits();
    }
    if (bytes[this.#at] === 0x65 || bytes[this.#at] === 0x45) {
      this.#at += 1;
      if (bytes[this.#at] === plus || bytes[this.#at] === minus) this.#at += 1;
      this.#digits();
    }
    if (this.#at - from > maxNumberLength) throw notJson("it has a number without end");
  }

  /** One digit or more. */
  #digits(): void {
    const { bytes } = this;
    const from = this.#at;
    for (const stop = from + maxNumberLength; this.#at <= stop; this.#at++) {
      const byte = bytes[this.#at] ?? 0;
      if (byte < zero || byte > nine) break;
    }
    if (this.#at === from) throw notJson();
  }

  /** A short string without a backslash; `undefined`, and nothing was read, where it is another one. */
  #shortText(): Text | undefined {
    const { bytes } = this;
    if (bytes[this.#at] !== quote) throw notJson();
    const from = this.#at + 1;
    for (let at = from; at < from + shortLength; at++) {
      const byte = bytes[at] ?? 0;
      if (byte === quote) {
        this.#at = at + 1;
        return { kind: "string", from, to: at, escaped: false };
      }
      if (byte < 0x20 || byte === backslash) break;
    }
    return undefined;
  }

  /** A string, from its opening quote on. */
  async #text(): Promise<Text> {
    const from = this.#at + 1;
    let to = await this.#find(quote, from);
    if (this.#backslash < from) {
      const next = await this.#find(backslash, from);
      this.#backslash = next < 0 ? this.bytes.length : next;
    }
    const escaped = this.#backslash < to || to < 0;
    if (escaped || this.strict) to = await this.#endOfText(from);
    if (to < 0) throw notJson();
    this.#at = to + 1;
    return { kind: "string", from, to, escaped };
  }

  /** The closing quote of a string that is read byte by byte. */
  async #endOfText(from: number): Promise<number> {
    const { bytes } = this;
    let at = from;
    while (at < bytes.length) {
      if (turns.over) await turns.next();
      for (const end = Math.min(bytes.length, at + pieceBytes); at < end; at++) {
        const byte = bytes[at]!;
        if (byte === quote) return at;
        if (byte < 0x20) throw notJson();
        if (byte === backslash) {
          const next = bytes[++at] ?? 0;
          if (next === unicodeEscape) {
            if (Number.isNaN(hexAt(bytes, at + 1))) throw notJson();
            at += 4;
          } else if (escapes[next] === undefined) throw notJson();
        }
      }
    }
    return -1;
  }

  async #find(byte: number, from: number): Promise<number> {
    const { bytes } = this;
    for (let at = from; at < bytes.length; at += windowBytes) {
      const index = bytes.subarray(at, at + windowBytes).indexOf(byte);
      if (index >= 0) return at + index;
      if (turns.over) await turns.next();
    }
    return -1;
  }

  /** Skip white space. */
  #gap(): void {
    const { bytes } = this;
    const from = this.#at;
    for (;;) {
      const byte = bytes[this.#at];
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return;
      this.#at += 1;
      if (this.#at - from > maxSpaceLength) throw notJson("it has white space without end");
    }
  }
}

function notJson(why?: string): EmbedError {
  const message = "the body is not valid JSON";
  return new EmbedError("bad_request", why === undefined ? message : `${message}: ${why}`);
}

/** Four hexadecimal digits; NaN where they are none. */
function hexAt(bytes: Buffer, at: number): number {
  const text = bytes.toString("latin1", at, at + 4);
  return /^[0-9a-fA-F]{4}$/.test(text) ? Number.parseInt(text, 16) : Number.NaN;
}

/** Decode one image file in its place: RFC 4648 §4, padding included, nothing else. */
async function decode(body: Buffer, text: Text, image: number): Promise<Uint8Array> {
  const refuse = (why: string) =>
    new EmbedError("bad_request", `image ${image} is not base64: ${why}`, image);
  const { from } = text;
  const to = text.escaped ? await resolveEscapes(body, text) : text.to;
  const length = to - from;
  if (body.toString("latin1", from, from + 5) === "data:") {
    throw refuse("it is a data URL; send what follows its comma");
  }
  if (length % 4 !== 0) {
    throw refuse(`its length must be a multiple of 4 with padding, got ${length}`);
  }
  const last = body.toString("latin1", to - 4, to);
  let end = from;
  for (let at = from; at < to; at += pieceBytes) {
    if (turns.over) await turns.next();
    const piece = body.toString("latin1", at, Math.min(to, at + pieceBytes));
    const padding = at + piece.length < to ? 0 : (/={1,2}$/.exec(piece)?.[0].length ?? 0);
    const bytes = (piece.length / 4) * 3 - padding;
    // Node skips what is none of base64, and takes the alphabet of URLs too
    const written = body.write(piece, end, bytes, "base64");
    if (written !== bytes || piece.includes("-") || piece.includes("_") || padded(piece, padding)) {
      const bad = /[^A-Za-z0-9+/]/.exec(piece.slice(0, piece.length - padding));
      const position = at - from + (bad?.index ?? 0);
      throw refuse(`unexpected ${JSON.stringify(bad?.[0] ?? "")} at position ${position}`);
    }
    end += bytes;
  }
  if (Buffer.from(last, "base64").toString("base64") !== last) {
    throw refuse("its last characters have bits that belong to no byte");
  }
  return body.subarray(from, end);
}

/** Whether there is padding before the end. */
function padded(piece: string, padding: number): boolean {
  return piece.indexOf("=") < piece.length - padding && piece.includes("=");
}

/**
 * Resolve the escapes of a string in its place: some writers escape `/` and `+`.
 *
 * @returns its new end
 */
async function resolveEscapes(body: Buffer, { from, to }: Text): Promise<number> {
  let end = from;
  for (let at = from; at < to; ) {
    if (turns.over) await turns.next();
    for (const stop = Math.min(to, at + pieceBytes); at < stop; at++) {
      let byte = body[at]!;
      if (byte === backslash) {
        byte = body[++at]!;
        if (byte === unicodeEscape) {
          const code = hexAt(body, at + 1);
          byte = code < 0x80 ? code : notAscii;
          at += 4;
        } else byte = escapes[byte]!;
      }
      body[end++] = byte;
    }
  }
  return end;
}
