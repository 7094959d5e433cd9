import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { normalised } from "./image-tensor.ts";
import { type PreprocessMode, preprocess } from "./preprocess.ts";

const run = promisify(execFile);
/** Python with Pillow and NumPy, for example in a virtual environment. */
const python = process.env.CLIPSTACK_PYTHON ?? "python3";
const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const reference = here("./preprocess-reference.py");

const missing = await run(python, ["-c", "import PIL, numpy"]).then(
  () => "",
  () => ` (skipped: '${python}' has no Pillow and NumPy; name one that has with CLIPSTACK_PYTHON)`,
);

/** Difference from OpenCLIP's preprocessing. */
interface Closeness {
  /** Cosine of the normalised model inputs. */
  readonly cosine: number;
  /** Maximum difference in 8-bit levels. */
  readonly maxDifference: number;
}

function compare(pixels: Uint8Array, reference: Uint8Array): Closeness {
  const [a, b] = [normalised(pixels), normalised(reference)];
  let [dot, aa, bb] = [0, 0, 0];
  for (let at = 0; at < a.length; at++) {
    dot += a[at]! * b[at]!;
    aa += a[at]! * a[at]!;
    bb += b[at]! * b[at]!;
  }
  const maxDifference = pixels.reduce(
    (most, value, at) => Math.max(most, Math.abs(value - reference[at]!)),
    0,
  );
  return { cosine: dot / Math.sqrt(aa * bb), maxDifference };
}

describe.skipIf(missing !== "")(`parity with Pillow, as open_clip uses it${missing}`, () => {
  let folder: string;
  const results = { exact: new Map<string, Closeness>(), fast: new Map<string, Closeness>() };

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-pillow-"));
    await run(python, [reference, "write", folder]);
    for (const name of (await readdir(folder)).filter((file) => !file.endsWith(".rgb")).sort()) {
      const bytes = await readFile(join(folder, name));
      const reference = await readFile(join(folder, `${name}.rgb`));
      for (const mode of ["exact", "fast"] as const satisfies readonly PreprocessMode[]) {
        const pixels = await preprocess(bytes, { maxPixels: 1e8, mode });
        results[mode].set(name, compare(pixels, reference));
      }
    }
    const differs = [...results.fast].filter(([, { maxDifference }]) => maxDifference > 0);
    console.table(Object.fromEntries(differs));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  test("covers at least 70 kinds of image", () => {
    expect(results.exact.size).toBeGreaterThanOrEqual(70);
  });

  test("exact: every image is equal, bit for bit", () => {
    const differs = [...results.exact].filter(([, { maxDifference }]) => maxDifference > 0);
    expect(differs).toEqual([]);
  });

  test("fast: every image has a cosine of at least 0.9996", () => {
    const far = [...results.fast].filter(([, { cosine }]) => !(cosine >= 0.9996));
    expect(far).toEqual([]);
  });

  test("the committed hashes match this Pillow", async () => {
    const { stdout } = await run(python, [reference, "hash", here("../../model-tools/samples")]);
    const committed = await readFile(here("./preprocess-golden.json"), "utf8");
    expect(JSON.parse(stdout)).toEqual(JSON.parse(committed));
  });
});
