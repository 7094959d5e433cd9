import { readFileSync } from "node:fs";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { TextInput } from "../../contract/model-spec.ts";
import { clipText } from "../../contract/models/open-clip.ts";
import { openClipBpe } from "./clip-bpe.ts";
import { goldenTextCount, testTexts } from "./test-texts.ts";
import { openTokenizer } from "./tokenizer.ts";

const clip: TextInput = { tensor: "text", idType: "int64", ...clipText };
const clipTokenizer = openTokenizer(clip);

/** Ids of one text without the padding. */
async function idsOf(text: string): Promise<readonly number[]> {
  const { ids, tokens } = (await clipTokenizer).encode([text]);
  return Array.from(ids.slice(0, tokens[0]), Number);
}

test("encodes the example of OpenAI's CLIP", async () => {
  expect(await idsOf("Hello  world!")).toEqual([49_406, 3306, 1002, 256, 49_407]);
});

test("pads each text with the padding id", async () => {
  const { ids, shape, tokens } = (await clipTokenizer).encode(["a cat", "", "dogs"]);
  expect(shape).toEqual([3, 77]);
  expect(tokens).toEqual([4, 2, 3]);
  expect(ids).toBeInstanceOf(BigInt64Array);
  expect(Array.from(ids.slice(77, 80), Number)).toEqual([49_406, 49_407, 0]);
  expect(ids.slice(4, 77).every((id) => Number(id) === 0)).toBe(true);
});

test("replaces the last id of a long text with the end id", async () => {
  const ids = await idsOf("cat ".repeat(100));
  expect(ids).toHaveLength(77);
  expect(ids.slice(-2)).toEqual([2368, 49_407]);
});

test("keeps a text of exactly the context length", async () => {
  const ids = await idsOf("cat ".repeat(75));
  expect(ids).toHaveLength(77);
  expect(new Set(ids.slice(1, 76))).toEqual(new Set([2368]));
});

test("reads a special token within a text only at the start of a part", async () => {
  expect(await idsOf("cat <end_of_text> cat")).toEqual([49_406, 2368, 49_407, 2368, 49_407]);
  expect((await idsOf("cat !<end_of_text>")).filter((id) => id === 49_407)).toHaveLength(1);
});

test("returns int32 ids for a spec with int32", async () => {
  const { ids } = (await openTokenizer({ ...clip, idType: "int32" })).encode(["a cat"]);
  expect(ids).toBeInstanceOf(Int32Array);
  expect([...ids.slice(0, 5)]).toEqual([49_406, 320, 2368, 49_407, 0]);
});

test("fails when the spec states another vocabulary size", async () => {
  await expect(openTokenizer({ ...clip, vocabularySize: 32_000 })).rejects.toThrow(
    "tokenizer clip-bpe: vocabularySize must be 49408, the size of CLIP's vocabulary, got 32000",
  );
});

test.each([
  ["one letter", "a"],
  ["prose", "the quick brown fox "],
  ["Chinese", "一只猫的照片"],
  ["emoji", "😂"],
  ["punctuation", "!?."],
  ["encoded ampersands", "&amp;amp;"],
  ["combining marks", "\u0301\u0316"],
])("reads only the beginning of 200 long texts of %s", async (_name, part) => {
  const tokenizer = await clipTokenizer;
  const text = `&${part.repeat(32_768 / part.length)}`;
  const before = process.cpuUsage();
  const { tokens } = tokenizer.encode(Array.from({ length: 200 }, () => text));
  expect(Math.max(...tokens)).toBeLessThanOrEqual(77);
  // whole texts take 20 to 40 s of processor time, which other processes do not lengthen
  expect(process.cpuUsage(before).user / 1e6).toBeLessThan(15);
});

test("the beginning of a long word has the ids that it has in the whole word", async () => {
  const tokenIds = openClipBpe(clip);
  const letters = ["a", "b", "in", "the", "ing", "😂", "一", "é", "!", "...", "к"];
  fc.assert(
    fc.property(
      fc.array(fc.constantFrom(...letters), { minLength: 5, maxLength: 60 }),
      fc.integer({ min: 1, max: 12 }),
      (word, limit) => {
        const text = word.join("");
        const all = tokenIds(text, Number.POSITIVE_INFINITY);
        const first = tokenIds(text, limit);
        expect(first.slice(0, limit)).toEqual(all.slice(0, limit));
      },
    ),
    { numRuns: 3_000, seed: 1 },
  );
});

/** Ids that open_clip's tokenizer returned, without the padding. Written by `tokenizer.integ.test.ts`. */
const golden = readFileSync(new URL("./tokenizer-golden.jsonl", import.meta.url), "utf8")
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line) as { readonly text: string; readonly ids: readonly number[] });

test("returns the ids of open_clip's tokenizer for the golden texts", async () => {
  expect(golden).toHaveLength(goldenTextCount);
  const { ids } = (await clipTokenizer).encode(golden.map(({ text }) => text));
  const different = golden.filter(({ ids: expected }, index) => {
    const row = Array.from(ids.subarray(index * 77, (index + 1) * 77), Number);
    return row.some((id, position) => id !== (expected[position] ?? 0));
  });
  expect(different).toEqual([]);
});

test("the golden texts are the first of the texts that the integration test compares", () => {
  expect(golden.map(({ text }) => text)).toEqual(testTexts(goldenTextCount));
});
