import fc, { type Arbitrary } from "fast-check";
import type { SampleImage } from "../../target/reference/reference.ts";

export function weighted<T>(
  ...choices: readonly (readonly [number, Arbitrary<T>])[]
): Arbitrary<T> {
  return fc.oneof(...choices.map(([weight, arbitrary]) => ({ weight, arbitrary })));
}

export const empty = Buffer.alloc(0);
export const text = (value: string) => Buffer.from(value, "utf8");
export const json = (value: unknown) => text(JSON.stringify(value) ?? "");
export const someBytes = (maxLength: number) => fc.uint8Array({ maxLength }).map(Buffer.from);

/** Bytes with up to four changes. */
export function mutated(original: Arbitrary<Buffer>): Arbitrary<Buffer> {
  const change = fc.record({
    operation: fc.constantFrom("set", "flip", "insert", "remove", "cut", "size"),
    at: fc.oneof(fc.nat(64), fc.nat(1_000_000)),
    value: fc.nat(300),
  });
  return fc
    .tuple(original, fc.array(change, { maxLength: 4 }))
    .map(([bytes, changes]) => changes.reduce(withChange, bytes));
}

/** Values written over length fields. */
const sizes = [0, 0x7fffffff, 0xffffffff, 0x00ffffff];

function withChange(
  bytes: Buffer,
  {
    operation,
    at,
    value,
  }: { readonly operation: string; readonly at: number; readonly value: number },
): Buffer {
  if (bytes.length === 0) return bytes;
  const position = at % bytes.length;
  const copy = Buffer.from(bytes);
  switch (operation) {
    case "set":
      copy[position] = value;
      return copy;
    case "flip":
      copy[position]! ^= 1 << (value % 8);
      return copy;
    case "insert":
      return Buffer.concat([
        copy.subarray(0, position),
        Buffer.alloc(value, value),
        copy.subarray(position),
      ]);
    case "remove":
      return Buffer.concat([copy.subarray(0, position), copy.subarray(position + value)]);
    case "size":
      if (position + 4 <= copy.length) copy.writeUInt32BE(sizes[value % 4]!, position);
      return copy;
    default:
      return copy.subarray(0, position);
  }
}

/** JSON: unchanged, with one value replaced, with bytes changed, or unrelated. */
export function mutatedJson(value: Arbitrary<unknown>): Arbitrary<Buffer> {
  const odd = fc.oneof(fc.constantFrom(0, -1, 33, 2 ** 53, 1e300, 0.5, "", null), fc.jsonValue());
  const replaced = fc.tuple(value, fc.nat(), odd).map(([document, at, other]) => {
    let values = 0;
    JSON.stringify(document, (_key, part) => {
      values += 1;
      return part;
    });
    let index = 0;
    return text(
      JSON.stringify(document, (_key, part) => (index++ === at % values ? other : part)) ?? "",
    );
  });
  const other = fc.constantFrom(
    "[".repeat(5_000),
    '{"images":'.repeat(500),
    '{"images":["',
    "",
    " ",
  );
  return weighted(
    [5, value.map(json)],
    [6, replaced],
    [4, mutated(value.map(json))],
    [1, fc.jsonValue().map(json)],
    [1, other.map(text)],
  );
}

export function mutatedImages(images: readonly SampleImage[]): Arbitrary<Buffer> {
  const original = fc.constantFrom(...images.map(({ bytes }) => Buffer.from(bytes)));
  const spliced = fc
    .tuple(original, original, fc.double({ min: 0, max: 1, noNaN: true }))
    .map(([a, b, share]) =>
      Buffer.concat([
        a.subarray(0, Math.floor(a.length * share)),
        b.subarray(Math.floor(b.length * share)),
      ]),
    );
  const heads = ["", "\xff\xd8\xff", "\x89PNG\r\n\x1a\n", "RIFF\0\0\0\0WEBP", "GIF89a", "<svg/>"];
  return weighted(
    [2, original],
    [6, mutated(original)],
    [1, mutated(spliced)],
    [1, someBytes(300)],
    [1, fc.constantFrom(...heads).map((head) => Buffer.from(head, "latin1"))],
  );
}
