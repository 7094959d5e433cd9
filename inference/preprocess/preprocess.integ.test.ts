import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ImageInput } from "../../contract/model-spec.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import { normalised } from "./image-tensor.ts";
import { type PreprocessMode, preprocess } from "./preprocess.ts";
import { pixelFacts, towerOf, vitB32 } from "./test-inputs.ts";

const run = promisify(execFile);
/** Python with Pillow and NumPy, for example in a virtual environment. */
const python = process.env.CLIPSTACK_PYTHON ?? "python3";
/** Python with PyTorch, torchvision, open_clip and Transformers too. */
const torchPython = process.env.CLIPSTACK_PYTHON_TORCH ?? "python3";
const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const reference = here("./test-preprocess-reference.py");
const samples = here("../../model-tools/samples");

/** Families of test-preprocess-reference.py: image input of one of their models, and stated largest difference in levels. */
const families: Readonly<Record<string, { readonly input: ImageInput; readonly levels: number }>> =
  {
    openclip: { input: vitB32.input, levels: 0 },
    siglip2: { input: towerOf("siglip2-base-224").input, levels: 0 },
    dinov2: { input: towerOf("dinov2-small").input, levels: 0 },
    mobileclip2: { input: towerOf("mobileclip2-s0").input, levels: 0 },
    "efficientnet-lite0": { input: towerOf("efficientnet-lite0").input, levels: 1.01 },
    letterbox: {
      input: {
        ...vitB32.input,
        size: { width: 320, height: 240 },
        resize: { mode: "letterbox", fill: [9, 130, 255] },
      },
      levels: 0,
    },
  };

const required = "import PIL, numpy; assert int(PIL.__version__.split('.')[0]) >= 13";
const missing = await run(python, ["-c", required]).then(
  () => "",
  () =>
    ` (skipped: '${python}' has no Pillow 13 and NumPy; name one that has with CLIPSTACK_PYTHON)`,
);
const imported = "import open_clip, torchvision, transformers";
const missingPackages = await run(torchPython, ["-c", imported]).then(
  () => "",
  () =>
    ` (skipped: '${torchPython}' has no open_clip, torchvision and Transformers; name one that has with CLIPSTACK_PYTHON_TORCH)`,
);

/** Difference from the reference. */
interface Closeness {
  /** Cosine of the normalised model inputs. */
  readonly cosine: number;
  /** Maximum difference in 8-bit levels. */
  readonly maxDifference: number;
}

function compare(pixels: Uint8Array, reference: ArrayLike<number>, input: ImageInput): Closeness {
  const a = normalised(pixels, input);
  const b = normalised(Uint8Array.from(reference, Math.round), input);
  let [dot, aa, bb, maxDifference] = [0, 0, 0, 0];
  for (let at = 0; at < a.length; at++) {
    dot += a[at]! * b[at]!;
    aa += a[at]! * a[at]!;
    bb += b[at]! * b[at]!;
    maxDifference = Math.max(maxDifference, Math.abs(pixels[at]! - reference[at]!));
  }
  return { cosine: dot / Math.sqrt(aa * bb), maxDifference };
}

/** 8-bit RGB, or float32 of a reference that does not round. */
function valuesOf(file: Buffer, { size }: ImageInput): Uint8Array | Float32Array {
  if (file.length === 3 * size.width * size.height) return file;
  return new Float32Array(file.buffer.slice(file.byteOffset, file.byteOffset + file.length));
}

test("every image input of the catalogue has a reference", () => {
  const covered = Object.values(families).map(({ input }) => pixelFacts(input));
  for (const { towers } of modelCatalogue.values()) {
    if (towers.image !== undefined) expect(covered).toContainEqual(pixelFacts(towers.image.input));
  }
});

describe.skipIf(missing !== "")(`parity with the models' references${missing}`, () => {
  let folder: string;
  let images: readonly string[];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-pillow-"));
    await run(python, [reference, "write", folder]);
    images = (await readdir(folder)).filter((file) => /\.(jpg|png|webp)$/.test(file)).sort();
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  async function closeness(family: string, mode: PreprocessMode, names: readonly string[]) {
    const { input } = families[family]!;
    const found = new Map<string, Closeness>();
    for (const name of names) {
      const file = await readFile(join(folder, `${name}.${family}`)).catch(() => undefined);
      if (file === undefined) continue;
      const bytes = await readFile(join(folder, name));
      const pixels = await preprocess(bytes, input, { maxPixels: 1e8, mode });
      found.set(name, compare(pixels, valuesOf(file, input), input));
    }
    return found;
  }

  test.each(Object.entries(families))("%s, exact: every image", async (family, { levels }) => {
    const found = await closeness(family, "exact", images);
    expect(found.size).toBeGreaterThanOrEqual(70);
    const largest = Math.max(...[...found.values()].map(({ maxDifference }) => maxDifference));
    console.log(`${family}: largest difference ${largest} levels of ${found.size} images`);
    const differs = [...found].filter(([, { maxDifference }]) => !(maxDifference <= levels));
    expect(differs).toEqual([]);
  });

  test.each(Object.entries(families))(
    "%s, fast: every JPEG has a cosine of at least 0.9996",
    async (family) => {
      const jpegs = images.filter((name) => name.endsWith(".jpg"));
      const found = await closeness(family, "fast", jpegs);
      const lowest = Math.min(...[...found.values()].map(({ cosine }) => cosine));
      console.log(`${family}, fast: lowest cosine ${lowest}`);
      expect([...found].filter(([, { cosine }]) => !(cosine >= 0.9996))).toEqual([]);
    },
  );
});

describe.skipIf(missing !== "")(`hashes of the samples and normalised values${missing}`, () => {
  test("the committed hashes match this Pillow", async () => {
    const { stdout } = await run(python, [reference, "hash", samples]);
    const committed = await readFile(here("./preprocess-golden.json"), "utf8");
    expect(JSON.parse(stdout)).toEqual(JSON.parse(committed));
  });

  test("normalised values differ from the reference by at most 5e-7", async () => {
    const { stdout } = await run(python, [reference, "levels"], { maxBuffer: 1e7 });
    const models = Object.entries<number[][]>(JSON.parse(stdout));
    expect(models.map(([model]) => model)).toEqual([...modelCatalogue.keys()]);
    for (const [model, channels] of models) {
      const { input } = towerOf(model);
      const row = { ...input, size: { width: 256, height: 1 } };
      const values = normalised(
        Uint8Array.from({ length: 768 }, (_, at) => Math.floor(at / 3)),
        row,
      );
      const largest = values.reduce(
        (most, value, at) =>
          Math.max(most, Math.abs(value - channels[Math.floor(at / 256)]![at % 256]!)),
        0,
      );
      console.log(`${model}: largest difference of normalised values ${largest}`);
      expect(largest, model).toBeLessThanOrEqual(5e-7);
    }
  });
});

describe.skipIf(missingPackages !== "")(`packages of the models${missingPackages}`, () => {
  test("the references equal open_clip, torchvision and Transformers", async () => {
    const { stdout } = await run(torchPython, [reference, "packages", samples]);
    const found: Record<string, readonly [number, string]> = JSON.parse(stdout);
    console.table(found);
    const largest = Object.fromEntries(
      Object.entries(found).map(([name, [difference]]) => [name, difference]),
    );
    expect(largest).toMatchObject({
      "open_clip ViT-B-32": 0,
      "open_clip MobileCLIP2-S0": 0,
      "torchvision DINOv2": 0,
      "transformers SigLIP 2": 0,
    });
    // the default of Transformers resizes with torchvision
    expect(largest["transformers-torchvision SigLIP 2"]).toBeLessThanOrEqual(1);
  }, 300_000);
});
