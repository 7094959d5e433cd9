import { setImmediate as nextTurn } from "node:timers/promises";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { JsonReader } from "./json-reader.ts";
import { TensorData, WireError } from "./wire.ts";

const read = (text: string | Uint8Array) => new JsonReader(Buffer.from(text)).readAll();
/** Objects with a prototype again, and elements as arrays. */
const plain = (value: unknown): unknown => {
  if (value instanceof TensorData) return [...value.values];
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
};
const elementsOf = (data: string) => (read(`{"data":${data}}`) as { data: TensorData }).data;

test("reads whatever JSON.stringify writes, as JSON.parse does", () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 6 }), fc.constantFrom(0, 1, "\t"), (value, space) => {
      const text = JSON.stringify({ value }, undefined, space);
      expect(plain(read(text))).toEqual(JSON.parse(text));
    }),
    { numRuns: 500 },
  );
});

test("reads every number exactly, however it is written", () => {
  const text = fc.oneof(
    fc.double({ noNaN: true, noDefaultInfinity: true }).map(String),
    fc.float({ noNaN: true, noDefaultInfinity: true }).map((value) => value.toPrecision(9)),
    fc
      .tuple(fc.maxSafeInteger(), fc.nat(1e9), fc.integer({ min: -330, max: 310 }))
      .map(([whole, fraction, power]) => `${whole}.${fraction}e${power}`),
  );
  fc.assert(
    fc.property(fc.array(text), (numbers) => {
      const data = elementsOf(`[${numbers.join(" , ")}]`);
      expect([...data.values]).toEqual(numbers.map(Number));
    }),
    { numRuns: 1000 },
  );
});

test("whatever arrives, JSON.parse takes it or both refuse it", () => {
  const piece = fc.constantFrom(
    ...'{}[]:,"\\-+.0123456789eEtrufalsn \n'.split(""),
    '"data":',
    "[1,2",
  );
  fc.assert(
    fc.property(
      fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join("")),
      (text) => {
        let expected: unknown;
        try {
          expected = JSON.parse(text);
        } catch {
          expect(() => read(text)).toThrow(WireError);
          return;
        }
        expect(plain(read(text))).toEqual(expected);
      },
    ),
    { numRuns: 20_000 },
  );
});

describe("the elements of a tensor", () => {
  test("are flat, nested as they may be, and numbers as long as all of them are", () => {
    expect(elementsOf("[[1,[2]],[],3]").numbers).toEqual(new Float64Array([1, 2, 3]));
    const mixed = elementsOf('[1,["a"],true]');
    expect(mixed.numbers).toBeUndefined();
    expect([...mixed.values]).toEqual([1, "a", true]);
    expect(mixed.length).toBe(3);
  });

  test("keep their keys and neighbours", () => {
    expect(plain(read('{"a":[{"data":[1,2],"b":[3]}],"data":5,"__proto__":{"x":1}}'))).toEqual(
      JSON.parse('{"a":[{"data":[1,2],"b":[3]}],"data":5,"__proto__":{"x":1}}'),
    );
  });
});

describe("fails on", () => {
  test.each([
    ["nothing", "", "it ends early"],
    ["half of it", '{"a":', "it ends early"],
    ["a string without an end", '{"a', "it ends early"],
    ["something after it", "{} x", 'unexpected "x" at offset 3'],
    ["NaN", '{"data":[NaN]}', 'unexpected "N" at offset 9'],
    ["a leading zero", '{"data":[01]}', 'unexpected "]" at offset 11'],
    ["a comma too many", '{"data":[1,]}', 'unexpected "]" at offset 11'],
    ["an object among elements", '{"data":[{}]}', 'unexpected "{" at offset 9'],
    ["a control character", '{"a":"\u0001"}', "a string at offset 5 is not valid"],
    [
      "nesting without end",
      "[".repeat(200),
      "JSON nesting depth exceeds maximum allowed limit (100)",
    ],
    [
      "nested elements without end",
      `{"data":${"[".repeat(200)}`,
      "JSON nesting depth exceeds maximum allowed limit (100)",
    ],
    [
      "more values than a request can have",
      `[${"1,".repeat(100_001)}1]`,
      "more than 100000 values beside the elements of tensors",
    ],
    [
      "more strings than a model takes",
      `{"data":[${'"",'.repeat(1_000_001)}""]}`,
      "'data' has more than 1000000 elements, and they are not numbers",
    ],
  ])("%s", (_, text, problem) => {
    expect(() => read(text)).toThrow(new WireError(`failed to parse JSON: ${problem}`));
  });

  test("bytes that are no text, such as an image in a string", () => {
    const bytes = Buffer.concat([
      Buffer.from('{"a":"'),
      Buffer.from([0xff, 0xd8]),
      Buffer.from('"}'),
    ]);
    expect(() => read(bytes)).toThrow("failed to parse JSON: a string is not UTF-8");
  });
});

test("a large body is read in turns: others get theirs in between", async () => {
  const text = `{"data":[${Array.from({ length: 200_000 }, (_, index) => index / 7).join()}]}`;
  let turns = 0;
  const pace = {
    over: true,
    next: async () => {
      turns += 1;
      await nextTurn();
    },
  };
  const value = (await new JsonReader(Buffer.from(text)).read(pace)) as { data: TensorData };
  expect(turns).toBeGreaterThan(20);
  expect(value.data.length).toBe(200_000);
  expect(value.data.numbers?.[199_999]).toBe(199_999 / 7);
});
