import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { testModel, testSentencePiece } from "./test-sentencepiece.ts";
import { goldenTextCount } from "./test-texts.ts";
import { openTokenizer } from "./tokenizer.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-tokenizer-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Ids that Python's sentencepiece returned. Written by `tokenizer.integ.test.ts`. */
const golden = readFileSync(new URL("./sentencepiece-golden.jsonl", import.meta.url), "utf8")
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line) as { readonly text: string; readonly ids: readonly number[] });

test("returns the ids of Python's sentencepiece, then the end id", async () => {
  expect(golden).toHaveLength(goldenTextCount);
  const tokenizer = await openTokenizer({ ...testSentencePiece, contextLength: 1000 }, testModel);
  const { ids, tokens } = tokenizer.encode(golden.map(({ text }) => text));
  const different = golden.filter(({ ids: expected }, index) => {
    const row = Array.from(ids.subarray(index * 1000, index * 1000 + tokens[index]!), Number);
    return row.join() !== [...expected, 1].slice(0, 1000).join();
  });
  expect(different).toEqual([]);
});

test("keeps the end id of a long text with truncation keep-end", async () => {
  const cut = await openTokenizer(testSentencePiece, testModel);
  const kept = await openTokenizer({ ...testSentencePiece, truncation: "keep-end" }, testModel);
  const [text] = ["a photo of a cat ".repeat(20)];
  expect(Number(cut.encode([text]).ids.at(-1))).not.toBe(1);
  expect(Number(kept.encode([text]).ids.at(-1))).toBe(1);
  expect(kept.encode([text]).ids.subarray(0, 63)).toEqual(cut.encode([text]).ids.subarray(0, 63));
});

test("reads only the first words of a long text, with the ids of the whole text", async () => {
  const short = await openTokenizer(testSentencePiece, testModel);
  const whole = await openTokenizer({ ...testSentencePiece, contextLength: 20_000 }, testModel);
  const text = "  a photo\u2581of   a cat, 猫の 写真 ".repeat(300);
  expect(short.encode([text]).ids).toEqual(whole.encode([text]).ids.slice(0, 64));
});

test("reads a lone surrogate as U+FFFD", async () => {
  const tokenizer = await openTokenizer(testSentencePiece, testModel);
  expect(tokenizer.encode(["a \ud83d"]).ids).toEqual(tokenizer.encode(["a \ufffd"]).ids);
});

test("lower-cases the text with SigLIP's cleaning", async () => {
  const tokenizer = await openTokenizer(
    { ...testSentencePiece, cleaning: ["lower-case"] },
    testModel,
  );
  expect(tokenizer.encode(["A Photo"]).ids).toEqual(tokenizer.encode(["a photo"]).ids);
});

test("fails without the path of the file", async () => {
  await expect(openTokenizer(testSentencePiece)).rejects.toThrow(
    "tokenizer test-sentencepiece.model: SentencePiece requires the path of this file",
  );
});

test("fails when the file is missing", async () => {
  const path = join(folder, "none.model");
  await expect(openTokenizer(testSentencePiece, path)).rejects.toThrow(
    `tokenizer ${path} cannot be read: ENOENT`,
  );
});

test("fails when the file is no SentencePiece model", async () => {
  const path = join(folder, "text.model");
  await writeFile(path, "not a model");
  await expect(openTokenizer(testSentencePiece, path)).rejects.toThrow(
    `tokenizer ${path} must be a SentencePiece model`,
  );
});

test("fails when the model has another number of pieces than the spec", async () => {
  const spec = { ...testSentencePiece, vocabularySize: 256_000 };
  await expect(openTokenizer(spec, testModel)).rejects.toThrow(
    `tokenizer ${testModel} must have 256000 pieces (vocabularySize), got 1200`,
  );
});

test("fails when the file has another checksum than the spec", async () => {
  const tokenizer = { ...testSentencePiece.tokenizer, sha256: "0".repeat(64) };
  await expect(openTokenizer({ ...testSentencePiece, tokenizer }, testModel)).rejects.toThrow(
    `tokenizer ${testModel} must have SHA-256 ${"0".repeat(64)}, got `,
  );
});
