import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { clipNormalisation, imageSide } from "../contract/model-signature.ts";
import { normalised } from "./image-tensor.ts";
import { preprocess } from "./preprocess.ts";

const run = promisify(execFile);
/** A Python with Pillow and NumPy, for example of a virtual environment. */
const python = process.env.CLIPSTACK_PYTHON ?? "python3";
const reference = fileURLToPath(new URL("./preprocess-reference.py", import.meta.url));

const missing = await run(python, ["-c", "import PIL, numpy"]).then(
  () => "",
  () => ` (skipped: '${python}' has no Pillow and NumPy; name one that has with CLIPSTACK_PYTHON)`,
);

/** How close the bytes of an image are to OpenCLIP's, after normalisation. */
interface Closeness {
  readonly cosine: number;
  /** In levels of 8 bits. */
  readonly meanDifference: number;
  readonly maxDifference: number;
}

function compare(values: Float32Array, bytes: Uint8Array): Closeness {
  const { mean, std } = clipNormalisation;
  const plane = imageSide ** 2;
  let [dot, ours, theirs, total, maxDifference] = [0, 0, 0, 0, 0];
  for (const [at, byte] of bytes.entries()) {
    const channel = at % 3;
    const value = values[channel * plane + Math.floor(at / 3)]!;
    const expected = (byte / 255 - mean[channel]!) / std[channel]!;
    dot += value * expected;
    ours += value * value;
    theirs += expected * expected;
    const difference = Math.abs(value - expected) * std[channel]! * 255;
    total += difference;
    maxDifference = Math.max(maxDifference, difference);
  }
  return {
    cosine: dot / Math.sqrt(ours * theirs),
    meanDifference: total / bytes.length,
    maxDifference: Math.round(maxDifference),
  };
}

describe.skipIf(missing !== "")(`parity with Pillow, as open_clip uses it${missing}`, () => {
  let folder: string;
  const results = new Map<string, Closeness>();

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-pillow-"));
    await run(python, [reference, folder]);
    for (const name of (await readdir(folder)).filter((file) => !file.endsWith(".rgb")).sort()) {
      const values = normalised(
        await preprocess(await readFile(join(folder, name)), { maxPixels: 1e8 }),
      );
      results.set(name, compare(values, await readFile(join(folder, `${name}.rgb`))));
    }
    console.table(Object.fromEntries(results));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  test("covers at least 20 kinds of image", () => {
    expect(results.size).toBeGreaterThanOrEqual(20);
  });

  test("images that are enlarged are the same, bit for bit", () => {
    const enlarged = [
      "small.png",
      "dot.png",
      "wide.png",
      "tall.jpg",
      "line.png",
      "animated.webp",
      "small-alpha.png",
    ];
    for (const name of enlarged)
      expect(results.get(name), name).toMatchObject({ maxDifference: 0 });
  });

  test("all others differ by less than a level on average, and point the same way", () => {
    for (const [name, { cosine, meanDifference }] of results) {
      // where alpha is nearly 0, the colour that it weighs is coarse in 8 bits
      const least = name.includes("alpha") ? 0.998 : name === "bilevel.png" ? 0.998 : 0.9998;
      expect(cosine, name).toBeGreaterThan(least);
      if (name !== "bilevel.png") expect(meanDifference, name).toBeLessThan(1);
    }
  });
});
