import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { pngOf } from "../client/triton/test-png.ts";
import { imageTowerOf } from "../contract/model-shapes.ts";
import type { PixelInput } from "../contract/model-spec.ts";
import { catalogueSpecs, defaultModel } from "../contract/models/index.ts";
import { preprocessParameters } from "../contract/preprocess-parameters.ts";
import { preprocess } from "../inference/preprocess/preprocess.ts";

const run = promisify(execFile);
/** Python with Pillow 13 and NumPy, for example in a virtual environment. */
const python = process.env.CLIPSTACK_PYTHON ?? "python3";
const program = fileURLToPath(new URL("./test-preprocess-model.py", import.meta.url));
const model = fileURLToPath(
  new URL("../model_repository/openclip_vit_b32_preprocess/1/model.py", import.meta.url),
);
const sample = (file: string) =>
  fileURLToPath(new URL(`../model-tools/samples/${file}`, import.meta.url));

const vitB32 = imageTowerOf(defaultModel).input;
const size = { width: 100, height: 61 };

/** Inputs of the catalogue, and modes and filters that no model of it has. */
const inputs: Readonly<Record<string, PixelInput>> = {
  ...Object.fromEntries(catalogueSpecs.map((spec) => [spec.name, imageTowerOf(spec).input])),
  letterbox: { ...vitB32, size, resize: { mode: "letterbox", fill: [9, 130, 255] } },
  "letterbox, converted first": {
    ...vitB32,
    size,
    resize: { mode: "letterbox", fill: [9, 130, 255] },
    rgbConversion: "before-resize",
  },
  "shortest edge with TensorFlow's filter": {
    ...vitB32,
    size,
    resize: { mode: "shortest-edge", edge: 101 },
    filter: "tensorflow-bilinear",
  },
  "centre crop with Pillow's filter": {
    ...vitB32,
    size,
    resize: { mode: "centre-crop", fraction: 0.7 },
  },
};

// older versions resize tall images in another order
const required = "import PIL, numpy; assert int(PIL.__version__.split('.')[0]) >= 13";
const missing = await run(python, ["-c", required]).then(
  () => "",
  () =>
    ` (skipped: '${python}' has no Pillow 13 and NumPy; name one that has with CLIPSTACK_PYTHON)`,
);

describe.skipIf(missing !== "")(`openclip_vit_b32_preprocess in Python${missing}`, () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-python-"));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  async function answerOf(
    files: readonly string[],
    { maxPixels = 40_000_000, input = vitB32 }: { maxPixels?: number; input?: PixelInput } = {},
  ) {
    const out = join(folder, "pixels");
    const parameters = JSON.stringify(preprocessParameters(input, maxPixels));
    const { stdout } = await run(python, [program, model, parameters, out, ...files]);
    const answer = JSON.parse(stdout);
    return "error" in answer ? answer : { ...answer, pixels: await readFile(out) };
  }
  const file = async (name: string, content: Uint8Array) => {
    await writeFile(join(folder, name), content);
    return join(folder, name);
  };

  const files = [
    "sunset.jpg",
    "flower-exif-6.jpg",
    "tartan-cmyk.jpg",
    "terrain-grey.jpg",
    "shell-alpha.png",
    "clouds.webp",
    "panorama.jpg",
    "wood-thumbnail.jpg",
  ].map(sample);

  test.each(Object.entries(inputs))(
    "%s: produces the same pixels as the embed server's preprocessing",
    async (_, input) => {
      const { width, height } = input.size;
      const { pixels, ...rest } = await answerOf(files, { input });
      const shape = [files.length, height, width, 3];
      expect(rest).toEqual({ name: "pixels", shape, dtype: "uint8" });
      const bytes = 3 * width * height;
      for (const [index, path] of files.entries()) {
        const emulated = await preprocess(await readFile(path), input, { maxPixels: 40_000_000 });
        const reference = pixels.subarray(index * bytes, (index + 1) * bytes);
        expect(Buffer.compare(emulated, reference), path).toBe(0);
      }
    },
  );

  test("reports the first unreadable image with the same message as the embed server", async () => {
    const truncated = (await readFile(sample("sunset.jpg"))).subarray(0, 2000);
    const noImage = await file("text", Buffer.from("GIF89a is not supported"));
    expect(await answerOf([sample("sunset.jpg"), noImage])).toEqual({
      error: "image 1 is not a JPEG, PNG or WebP file",
      code: "INVALID_ARG",
    });
    const cut = await answerOf([await file("cut.jpg", truncated), noImage]);
    expect(cut.error).toMatch(/^image 0 cannot be decoded: /);
    expect((await answerOf([await file("empty", Buffer.alloc(0))])).error).toBe(
      "image 0 is not a JPEG, PNG or WebP file",
    );
  });

  test.each(["filter", "resize_edge"])(
    "fails with one line if config.pbtxt lacks the parameter %s",
    async (name) => {
      const rest = Object.fromEntries(
        Object.entries(preprocessParameters(vitB32, 40_000_000)).filter(([key]) => key !== name),
      );
      const { stdout } = await run(python, [program, model, JSON.stringify(rest), "unused"]);
      expect(JSON.parse(stdout)).toEqual({
        error: `parameter '${name}' must be set in config.pbtxt, got none`,
        code: "LOAD",
      });
    },
  );

  test("decodes no image beyond the pixel limit", async () => {
    const image = await file("large.png", pngOf(300, 200, new Uint8Array(300 * 200 * 3)));
    expect((await answerOf([image], { maxPixels: 59_999 })).error).toBe(
      "image 0 has 300 × 200 pixels, more than the limit of 59999",
    );
    expect((await answerOf([image], { maxPixels: 60_000 })).shape).toEqual([1, 224, 224, 3]);
  });

  test("resizes only the cropped part of a very narrow image", async () => {
    const line = await file("line.png", pngOf(20_000, 1, new Uint8Array(20_000 * 3).fill(77)));
    const { pixels } = await answerOf([line]);
    expect(new Set(pixels)).toEqual(new Set([77]));
  });
});
