import { closeSync, openSync, readSync, statSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";

/** Messages of `onnx.proto` through which external data is found: for each message, the type of its fields by field number. */
const messages = {
  model: { 7: "graph" },
  graph: { 1: "node", 5: "tensor" },
  node: { 5: "attribute" },
  attribute: { 5: "tensor", 6: "graph", 10: "tensor" },
  tensor: { 13: "entry" },
  entry: {},
} as const;
type Message = keyof typeof messages;

/**
 * Returns the files with the external data of an ONNX file, relative to its folder and sorted. Weights inside the file are skipped,
 * not read. Returns none for a file that is not ONNX.
 *
 * @throws {Error} with one line if the file or one of the others is missing
 */
export function externalDataOf(path: string): readonly string[] {
  const locations = externalLocations(path);
  for (const location of locations) {
    requireBeside(path, location);
    const file = statSync(join(dirname(path), location), { throwIfNoEntry: false });
    if (!file?.isFile()) throw new Error(`${path}: its external data '${location}' does not exist`);
  }
  return locations;
}

/** Returns the names of the files with external data in an ONNX file, whether they exist or not. */
export function externalLocations(path: string): readonly string[] {
  const descriptor = openSync(path, "r");
  try {
    const end = statSync(path).size;
    return [...new Set(locationsIn(new FieldReader(descriptor), "model", 0, end))].sort();
  } catch (error) {
    // not a complete ONNX file, which its readers report
    if (error instanceof RangeError) return [];
    throw error;
  } finally {
    closeSync(descriptor);
  }
}

/** @throws {Error} if the location of external data is outside the folder of the model */
export function requireBeside(path: string, location: string): void {
  if (location !== "" && !isAbsolute(location) && !location.split(/[\\/]/).includes("..")) return;
  throw new Error(`${path}: must have its external data in its folder, got '${location}'`);
}

function* locationsIn(
  reader: FieldReader,
  message: Message,
  start: number,
  end: number,
): Generator<string> {
  const inner: Readonly<Record<number, Message | undefined>> = messages[message];
  const texts: string[] = [];
  for (const field of reader.fields(start, end)) {
    const kind = inner[field.number];
    if (kind !== undefined) yield* locationsIn(reader, kind, field.start, field.end);
    if (message === "entry") texts.push(reader.text(field.start, field.end));
  }
  // `StringStringEntryProto` with the key and the value
  if (texts[0] === "location") yield texts[1] ?? "";
}

/** Reads the fields of protocol buffers from a file, a block at a time. */
class FieldReader {
  readonly #descriptor: number;
  readonly #block = Buffer.alloc(64 * 1024);
  #blockStart = 0;
  #blockBytes = 0;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  /** Length-delimited fields of a message. @throws {RangeError} if it is malformed */
  *fields(start: number, end: number) {
    for (let at = start; at < end; ) {
      const [tag, afterTag] = this.#varint(at);
      const wireType = tag % 8;
      const [value, afterValue] = wireType % 4 === 1 ? [0, afterTag] : this.#varint(afterTag);
      at = afterValue + ({ 0: 0, 1: 8, 2: value, 5: 4 }[wireType] ?? Number.POSITIVE_INFINITY);
      if (at > end) throw new RangeError("a field ends outside its message");
      if (wireType === 2) yield { number: Math.floor(tag / 8), start: afterValue, end: at };
    }
  }

  text(start: number, end: number): string {
    // longer than any path
    return Buffer.from(
      Array.from({ length: Math.min(end - start, 4096) }, (_, index) => this.#byte(start + index)),
    ).toString();
  }

  /** @returns The value and the position after it. */
  #varint(at: number): readonly [number, number] {
    let value = 0;
    for (let index = 0; index < 10; index++) {
      const byte = this.#byte(at + index);
      value += (byte & 0x7f) * 2 ** (7 * index);
      if (byte < 0x80) return [value, at + index + 1];
    }
    throw new RangeError("a number is longer than 10 bytes");
  }

  #byte(at: number): number {
    const isInBlock = at >= this.#blockStart && at < this.#blockStart + this.#blockBytes;
    if (!isInBlock) {
      this.#blockStart = at;
      this.#blockBytes = readSync(this.#descriptor, this.#block, 0, this.#block.length, at);
      if (this.#blockBytes === 0) throw new RangeError("the file ends inside a field");
    }
    return this.#block[at - this.#blockStart]!;
  }
}
