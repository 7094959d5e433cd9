import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { clipText } from "../../contract/models/open-clip.ts";
import { testModel, testSentencePiece } from "./test-sentencepiece.ts";
import { goldenTextCount, testTexts, trainedPieces, trainingTexts } from "./test-texts.ts";
import { openTokenizer } from "./tokenizer.ts";

/** Python with open_clip_torch, ftfy, regex, NumPy and sentencepiece, without PyTorch: `.ci/python-venv tokenizers`. */
const python = process.env.CLIPSTACK_PYTHON_TOKENIZERS ?? "python3";
const reference = fileURLToPath(new URL("./test-tokenizer-reference.py", import.meta.url));

const missing = await promisify(execFile)(python, [
  "-c",
  "import ftfy, numpy, regex, sentencepiece",
]).then(
  () => "",
  () =>
    ` (skipped: '${python}' has no open_clip_torch, ftfy, regex and sentencepiece; name one that has with CLIPSTACK_PYTHON_TOKENIZERS)`,
);

/** Output of the reference program for `texts`. */
async function referenceIds(texts: readonly string[], args: readonly string[]) {
  const running = promisify(execFile)(python, [reference, ...args], { maxBuffer: 2 ** 30 });
  running.child.stdin!.end(JSON.stringify(texts));
  return JSON.parse((await running).stdout) as readonly (readonly number[])[];
}

/** Golden file of the first texts, one per line. */
function goldenLines(texts: readonly string[], ids: readonly (readonly number[])[]): string {
  const lines = texts.slice(0, goldenTextCount).map((text, index) => {
    const padding = ids[index]!.findLastIndex((id) => id !== 0) + 1;
    return JSON.stringify({ text, ids: ids[index]!.slice(0, padding) });
  });
  return `${lines.join("\n")}\n`;
}

describe.skipIf(missing !== "")(`CLIP's tokenizer${missing}`, () => {
  const texts = testTexts(10_000);
  let expected: readonly (readonly number[])[];
  beforeAll(async () => {
    expected = await referenceIds(texts, ["open-clip"]);
  });

  test("returns the ids of open_clip's tokenizer for 10,000 texts in more than 20 scripts", async () => {
    const tokenizer = await openTokenizer({ tensor: "text", idType: "int64", ...clipText });
    const { ids, shape } = tokenizer.encode(texts);
    expect(shape).toEqual([texts.length, 77]);
    const different = texts.filter((_, index) => {
      const row = ids.subarray(index * 77, (index + 1) * 77);
      return expected[index]!.some((id, position) => id !== Number(row[position]));
    });
    expect(different).toEqual([]);
  });

  test("returned the ids in the golden file, which npm test compares", async () => {
    await expect(goldenLines(texts, expected)).toMatchFileSnapshot("./tokenizer-golden.jsonl");
  });
});

describe.skipIf(missing !== "")(`SentencePiece${missing}`, () => {
  const texts = testTexts(10_000).map((text) => text.replace(/\p{Surrogate}/gu, "\ufffd"));
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-sentencepiece-"));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test("returns the ids of Python's sentencepiece for 10,000 texts, with a model trained here", async () => {
    const model = join(folder, "trained.model");
    const command = ["train-sentencepiece", model, String(trainedPieces)];
    await referenceIds(trainingTexts, command);
    await compare(model);
  });

  test("returns the ids of Python's sentencepiece for 10,000 texts, with the model of npm test", async () => {
    const expected = await compare(testModel);
    await expect(goldenLines(texts, expected)).toMatchFileSnapshot("./sentencepiece-golden.jsonl");
  });

  async function compare(model: string) {
    const expected = await referenceIds(texts, ["sentencepiece", model]);
    const tokenizer = await openTokenizer({ ...testSentencePiece, contextLength: 1000 }, model);
    const { ids, tokens } = tokenizer.encode(texts);
    const different = texts.filter((_, index) => {
      const row = Array.from(ids.subarray(index * 1000, index * 1000 + tokens[index]!), Number);
      return row.join() !== [...expected[index]!, testSentencePiece.endId].slice(0, 1000).join();
    });
    expect(different).toEqual([]);
    return expected;
  }
});
