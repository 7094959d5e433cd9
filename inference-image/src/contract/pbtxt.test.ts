import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type PbtxtField, type PbtxtValue, parsePbtxt, printPbtxt } from "./pbtxt.ts";

const parse = (text: string) => parsePbtxt(text, "config.pbtxt");

/** The tree without positions, as nested arrays: shorter to compare. */
function plain(fields: readonly PbtxtField[]): unknown {
  const value = (item: PbtxtValue): unknown => {
    if (item.kind === "message") return { message: plain(item.fields) };
    if (item.kind === "list") return { list: item.items.map(value) };
    return { [item.kind]: item.text };
  };
  return fields.map((field) => [field.name, value(field.value)]);
}

describe("reads", () => {
  test.each<[string, string, unknown]>([
    ["nothing", " \n# only a comment", []],
    ["a string", 'name: "m"', [["name", { string: "m" }]]],
    ["a string in single quotes", `name: 'say "m"'`, [["name", { string: 'say "m"' }]]],
    ["neighbouring strings as one", `name: "a" 'b'\n  "c"`, [["name", { string: "abc" }]]],
    [
      "escapes",
      String.raw`s: "\n\t\\\"\'\x41\101\u00e9\U0001F600\303\251"`,
      [["s", { string: "\n\t\\\"'AAé😀é" }]],
    ],
    ["text that is not ASCII", 's: "größe 😀"', [["s", { string: "größe 😀" }]]],
    [
      "numbers",
      "a: -1 b: 0x1F c: 1.5e3f d: .5 e: - 2 f: 010 g: -inf",
      [
        ["a", { number: "-1" }],
        ["b", { number: "0x1F" }],
        ["c", { number: "1.5e3f" }],
        ["d", { number: ".5" }],
        ["e", { number: "-2" }],
        ["f", { number: "010" }],
        ["g", { number: "-inf" }],
      ],
    ],
    ["an enum", "kind: KIND_GPU", [["kind", { identifier: "KIND_GPU" }]]],
    [
      "a message in braces or angle brackets, with and without a colon",
      "a { b: 1 } c: { } d < e: 2 > f: < >",
      [
        ["a", { message: [["b", { number: "1" }]] }],
        ["c", { message: [] }],
        ["d", { message: [["e", { number: "2" }]] }],
        ["f", { message: [] }],
      ],
    ],
    [
      "lists, of messages without a colon too",
      "dims: [ 3, 224 ] none: [] input [ { a: 1 }, < a: 2 > ]",
      [
        ["dims", { list: [{ number: "3" }, { number: "224" }] }],
        ["none", { list: [] }],
        [
          "input",
          {
            list: [{ message: [["a", { number: "1" }]] }, { message: [["a", { number: "2" }]] }],
          },
        ],
      ],
    ],
    [
      "commas and semicolons between fields",
      "a: 1, b: 2; c: 3",
      [
        ["a", { number: "1" }],
        ["b", { number: "2" }],
        ["c", { number: "3" }],
      ],
    ],
    [
      "comments anywhere",
      "a: # one\n 1 # two\n# three\nb: 2#four",
      [
        ["a", { number: "1" }],
        ["b", { number: "2" }],
      ],
    ],
  ])("%s", (_name, text, expected) => {
    expect(plain(parse(text))).toEqual(expected);
  });

  test("the place of every field and value", () => {
    const [, second] = parse('a: 1\n  b: "x"');
    expect(second!.at).toEqual({ line: 2, column: 3 });
    expect(second!.value.at).toEqual({ line: 2, column: 6 });
  });
});

describe("fails at", () => {
  test.each([
    ["a value without a name", "1: 2", "1:1: expected a field name, got '1'"],
    ["a missing value", "a:\n}", "2:1: expected a value, got '}'"],
    ["a missing colon", 'name "m"', "1:6: expected ':' or '{' after 'name', got '\"m\"'"],
    ["a missing colon before a list", "dims [3]", "1:6: expected ':' after 'dims', got '['"],
    ["a message that is not closed", "a {\n b: 1", "2:6: expected '}', got the end of the file"],
    ["the wrong bracket", "a < b: 1 }", "1:10: expected a field name, got '}'"],
    ["a stray bracket", "a: 1 }", "1:6: expected a field name, got '}'"],
    ["a comma at the end of a list", "a: [1,]", "1:7: expected a value, got ']'"],
    ["a list in a list", "a: [[1]]", "1:5: expected a value, got '['"],
    ["a list without commas", "a: [1 2]", "1:7: expected ',' or ']', got '2'"],
    ["a string that is not closed", 'a: "x\nb: 1', "1:4: the string is not closed on its line"],
    ["an unknown escape", String.raw`a: "\q"`, String.raw`1:5: '\q' is not an escape`],
    ["half of a character", String.raw`a: "\xff"`, "1:4: a string must be valid UTF-8"],
    ["a surrogate", String.raw`a: "\ud800"`, String.raw`1:5: '\u' is not an escape`],
    ["a number with a tail", "a: 12ab", "1:4: '12ab' is not a number"],
    ["a sign before a word", "a: -x", "1:4: expected a value, got '-x'"],
    [
      "messages that are nested too deep",
      "a{".repeat(100),
      "1:130: messages must not be nested deeper than 64",
    ],
  ])("%s", (_name, text, message) => {
    expect(() => parse(text)).toThrow(`config.pbtxt:${message}`);
  });
});

const at = { line: 1, column: 1 };
const name = fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,8}$/);
const scalar = fc.oneof(
  name.map((text): PbtxtValue => ({ kind: "identifier", text, at })),
  fc
    .oneof(fc.integer(), fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }))
    .map((value): PbtxtValue => ({ kind: "number", text: String(value), at })),
  fc.string({ unit: "binary" }).map((text): PbtxtValue => ({ kind: "string", text, at })),
);
const { fields } = fc.letrec<{ fields: readonly PbtxtField[]; value: PbtxtValue }>((tie) => ({
  fields: fc.array(
    fc.record({ name, value: tie("value") as fc.Arbitrary<PbtxtValue>, at: fc.constant(at) }),
    { maxLength: 4 },
  ),
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    scalar,
    fc.array(scalar, { maxLength: 4 }).map((items): PbtxtValue => ({ kind: "list", items, at })),
    (tie("fields") as fc.Arbitrary<readonly PbtxtField[]>).map(
      (inner): PbtxtValue => ({ kind: "message", fields: inner, at }),
    ),
    fc.array(tie("fields") as fc.Arbitrary<readonly PbtxtField[]>, { maxLength: 3 }).map(
      (list): PbtxtValue => ({
        kind: "list",
        items: list.map((inner) => ({ kind: "message", fields: inner, at })),
        at,
      }),
    ),
  ),
}));

test("what is printed reads back as the same tree", () => {
  fc.assert(
    fc.property(fields, (tree) => {
      expect(plain(parse(printPbtxt(tree)))).toEqual(plain(tree));
    }),
  );
});

test("any text is read or refused by name, never anything else", () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(...'ab1-.:,;{}<>[]"\\x# \n') }), (text) => {
      try {
        parse(text);
      } catch (error) {
        expect(error).toHaveProperty("name", "PbtxtError");
      }
    }),
  );
});
