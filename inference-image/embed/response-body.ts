import { endianness } from "node:os";
import { setImmediate as nextIteration } from "node:timers/promises";

/** Decimals per value: half the length of full precision, with an error of 5e-9, a tenth of the resolution of float32 at 1. */
const decimals = 8;
const scale = 10 ** decimals;
/** Longest text of a value: minus, digit, decimal point, decimals and comma. */
const maxValueBytes = decimals + 4;

/** Four-digit text of each number below 10 000. */
const digits = Buffer.from(
  Array.from({ length: 10_000 }, (_, number) => String(number).padStart(4, "0")).join(""),
);

/** Number of vectors that are encoded in one iteration of the event loop: about a millisecond. */
const rowsPerIteration = 64;

/** Lets the event loop serve other requests. Called before each vector of a body is encoded. */
export async function yieldBefore(row: number): Promise<void> {
  if (row % rowsPerIteration === rowsPerIteration - 1) await nextIteration();
}

/**
 * Returns the JSON body of a response: the output of `JSON.stringify` for the rounded values, ten times as fast.
 *
 * @param vectors - Of equal length and unit norm: each value is within -1..1.
 */
export async function jsonBody(vectors: readonly Float32Array[], model: string): Promise<Buffer> {
  const head = '{"embeddings":[';
  const tail = Buffer.from(`],"model":${JSON.stringify(model)}}`);
  const width = vectors[0]?.length ?? 0;
  const bytes = Buffer.allocUnsafe(
    head.length + vectors.length * (width * maxValueBytes + 3) + tail.length,
  );
  let at = bytes.write(head, 0, "latin1");
  for (const [row, vector] of vectors.entries()) {
    await yieldBefore(row);
    if (row > 0) bytes[at++] = 0x2c;
    at = writeRow(bytes, at, vector);
  }
  at += tail.copy(bytes, at);
  return bytes.subarray(0, at);
}

/** Returns a vector of unit norm as a JSON array, with the same decimals as {@link jsonBody}. */
export function jsonArray(vector: Float32Array): Buffer {
  const bytes = Buffer.allocUnsafe(vector.length * maxValueBytes + 2);
  return bytes.subarray(0, writeRow(bytes, 0, vector));
}

function writeRow(bytes: Buffer, start: number, vector: Float32Array): number {
  let at = start;
  bytes[at++] = 0x5b;
  for (let index = 0; index < vector.length; index++) {
    if (index > 0) bytes[at++] = 0x2c;
    const rounded = Math.round(vector[index]! * scale);
    const size = Math.abs(rounded);
    if (rounded < 0) bytes[at++] = 0x2d;
    bytes[at++] = size === scale ? 0x31 : 0x30;
    const fraction = size === scale ? 0 : size;
    if (fraction === 0) continue;
    bytes[at++] = 0x2e;
    const high = Math.trunc(fraction / 10_000);
    at = writeDigits(bytes, at, high);
    at = writeDigits(bytes, at, fraction - high * 10_000);
    while (bytes[at - 1] === 0x30) at -= 1;
  }
  bytes[at++] = 0x5d;
  return at;
}

function writeDigits(bytes: Buffer, start: number, number: number): number {
  for (let index = 0; index < 4; index++) bytes[start + index] = digits[4 * number + index]!;
  return start + 4;
}

/** Returns the binary body of a response: float32, little endian, row-major. A single row is not copied. */
export function binaryBody(vectors: readonly Float32Array[]): Buffer {
  const rows = vectors.map(({ buffer, byteOffset, byteLength }) =>
    Buffer.from(buffer, byteOffset, byteLength),
  );
  if (endianness() === "BE") return Buffer.concat(rows).swap32();
  return rows.length === 1 ? rows[0]! : Buffer.concat(rows);
}
