import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Command } from "commander";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { readModelConfig } from "../../client/triton/model-config.ts";
import { daliFiles } from "../../contract/model-config.ts";
import { embeddingTensor, imageTowerOf } from "../../contract/model-shapes.ts";
import type { ImageInput, ModelSpec } from "../../contract/model-spec.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import { isForDali } from "../../inference/preprocess/dali-files.ts";
import { imageTensor, normalised } from "../../inference/preprocess/image-tensor.ts";
import { preprocess } from "../../inference/preprocess/preprocess.ts";
import { embeddingsOf } from "../../inference/session/embeddings.ts";
import { openSession } from "../../inference/session/onnx-session.ts";
import { trainedModel } from "../../model-tools/fetch/test-trained-model.ts";
import { registerModelPipeline } from "./model-pipeline.ts";

const run = promisify(execFile);
/** Python with DALI. */
const daliPython = process.env.CLIPSTACK_PYTHON_DALI ?? "python3";
/** Python with Pillow and NumPy, which writes the images. */
const python = process.env.CLIPSTACK_PYTHON ?? "python3";
const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const images = here("../../inference/preprocess/test-preprocess-reference.py");
const runner = here("../../model-tools/python/dali/test-run.py");

const hasPackages = (program: string, packages: string) =>
  run(program, ["-c", `import ${packages}`]).then(
    () => true,
    () => false,
  );
const missing = !(await hasPackages(daliPython, "nvidia.dali"))
  ? ` (skipped: '${daliPython}' has no DALI; name one that has with CLIPSTACK_PYTHON_DALI)`
  : (await hasPackages(python, "PIL, numpy"))
    ? ""
    : ` (skipped: '${python}' has no Pillow and NumPy; name one that has with CLIPSTACK_PYTHON)`;

const named = (name: string) => modelCatalogue.get(name)!;
const vitB32 = named("openclip-vit-b32");
const withInput = (input: Partial<ImageInput>): ModelSpec => {
  const image = imageTowerOf(vitB32);
  return { ...vitB32, towers: { image: { ...image, input: { ...image.input, ...input } } } };
};

/** Difference from the exact preprocessing. */
interface Closeness {
  /** Largest difference of a value, and of the mean over an image, in 8-bit levels. */
  readonly max: number;
  readonly mean: number;
  /** Cosine of the model inputs. */
  readonly cosine: number;
}

/** Stated differences from the exact preprocessing, for JPEG files that the gateway forwards. */
interface Stated extends Closeness {
  readonly spec: ModelSpec;
  /** Of a line of 20,000 × 1 pixels, if its ends are resized; otherwise as of other files. */
  readonly line?: Closeness;
}

/**
 * Every resize mode, filter, layout and channel order. The limits also held with other random contents of the images; the
 * figures of the catalogue are in docs/dali.md.
 *
 * Beyond an edge DALI repeats the last pixel, while Pillow leaves the weights out. When a line shrinks much, these weights are 1/8
 * (bilinear) or 0.081 (bicubic) of the sum, so its ends may differ by that part of 255 levels.
 */
const inputs: Readonly<Record<string, Stated>> = {
  "openclip-vit-b32": { spec: vitB32, max: 5, mean: 0.2, cosine: 0.99996 },
  "siglip2-base-224": {
    spec: named("siglip2-base-224"),
    ...{ max: 14, mean: 0.2, cosine: 0.99996 },
    line: { max: 255 / 8, mean: 0.1, cosine: 0.9996 },
  },
  "dinov2-small": { spec: named("dinov2-small"), max: 5, mean: 0.21, cosine: 0.99996 },
  "mobileclip2-s0": { spec: named("mobileclip2-s0"), max: 6, mean: 0.2, cosine: 0.99996 },
  "efficientnet-lite0": { spec: named("efficientnet-lite0"), max: 1, mean: 0.25, cosine: 0.99996 },
  letterbox: {
    spec: withInput({
      size: { width: 320, height: 240 },
      resize: { mode: "letterbox", fill: [9, 130, 255] },
      channelOrder: "bgr",
      layout: "nhwc",
    }),
    ...{ max: 8, mean: 0.21, cosine: 0.99996 },
    line: { max: 22, mean: 0.001, cosine: 0.99999 },
  },
  "shortest edge with TensorFlow's filter": {
    spec: withInput({
      size: { width: 100, height: 61 },
      resize: { mode: "shortest-edge", edge: 101 },
      filter: "tensorflow-bilinear",
    }),
    ...{ max: 1.5, mean: 0.21, cosine: 0.9999 },
  },
  "centre crop with Pillow's filter": {
    spec: withInput({
      size: { width: 100, height: 61 },
      resize: { mode: "centre-crop", fraction: 0.7 },
    }),
    ...{ max: 12, mean: 0.25, cosine: 0.9998 },
  },
};

function compare(a: Float32Array, b: Float32Array, { valueRange, std }: ImageInput): Closeness {
  // levels per unit, of the channel with the largest standard deviation
  const levels = Math.max(...std) * (valueRange === "0..1" ? 255 : 1);
  let [dot, aa, bb, max, sum] = [0, 0, 0, 0, 0];
  for (let at = 0; at < a.length; at++) {
    dot += a[at]! * b[at]!;
    aa += a[at]! * a[at]!;
    bb += b[at]! * b[at]!;
    const difference = Math.abs(a[at]! - b[at]!) * levels;
    max = Math.max(max, difference);
    sum += difference;
  }
  return { max, mean: sum / a.length, cosine: dot / Math.sqrt(aa * bb) };
}

const limits = { maxPixels: 1e8 };
let folder: string;
/** Images that the gateway forwards: complete JPEG files. */
const files: string[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-dali-"));
  if (missing !== "") return;
  await run(python, [images, "images", folder]);
  for (const name of (await readdir(folder)).sort()) {
    if (isForDali(await readFile(join(folder, name)), limits.maxPixels)) files.push(name);
  }
});
afterEach(() => vi.restoreAllMocks());
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

/** Writes the pipeline of a model for CPUs, and runs it on {@link files}. */
async function decoded(spec: ModelSpec) {
  const specFile = join(folder, "spec.json");
  await writeFile(specFile, JSON.stringify(spec));
  await run(daliPython, [here("../../model-tools/python/dali/pipeline.py"), specFile, folder]);
  const paths = files.map((name) => join(folder, name));
  const batch = String(spec.batching.maximum);
  await run(daliPython, [runner, join(folder, daliFiles.cpu), batch, ...paths]);
  const results = new Map<string, Float32Array>();
  for (const name of files) {
    const { buffer, byteOffset, length } = await readFile(join(folder, `${name}.dali`));
    results.set(name, new Float32Array(buffer.slice(byteOffset, byteOffset + length)));
  }
  return results;
}

describe.skipIf(missing !== "")(`DALI pipelines${missing}`, () => {
  test.each(Object.entries(inputs))(
    "%s: JPEG files differ from the exact preprocessing as stated",
    async (_name, { spec, ...stated }) => {
      const { input } = imageTowerOf(spec);
      const results = await decoded(spec);
      const found = new Map<string, Closeness>();
      for (const [name, result] of results) {
        const exact = await preprocess(await readFile(join(folder, name)), input, limits);
        expect(result.length, name).toBe(exact.length);
        found.set(name, compare(result, normalised(exact, input), input));
      }
      const isLine = (name: string) => name === "wide-line.jpg";
      const others = [...found].filter(([name]) => !isLine(name)).map(([, value]) => value);
      for (const [kind, values] of [
        [`${others.length} JPEG files`, others],
        ["line", [found.get("wide-line.jpg")!]],
      ] as const) {
        console.log(
          `${kind}: at most ${Math.max(...values.map(({ max }) => max)).toFixed(2)} levels, mean ${Math.max(...values.map(({ mean }) => mean)).toFixed(3)}, cosine ${Math.min(...values.map(({ cosine }) => cosine)).toFixed(6)}`,
        );
      }
      expect(found.size).toBeGreaterThanOrEqual(40);
      const differs = [...found].filter(([name, { max, mean, cosine }]) => {
        const limit = (isLine(name) ? stated.line : undefined) ?? stated;
        return !(max <= limit.max + 0.01 && mean <= limit.mean && cosine >= limit.cosine);
      });
      expect(differs).toEqual([]);
    },
    120_000,
  );

  test("the gateway does not forward a truncated file", async () => {
    const photo = await readFile(join(folder, "photo.jpg"));
    expect(isForDali(photo.subarray(0, photo.length >> 1), limits.maxPixels)).toBe(false);
    expect(isForDali(photo, limits.maxPixels)).toBe(true);
  });

  test("`model pipeline` writes configurations that Triton's model_config.proto parses", async () => {
    const log = vi.spyOn(console, "log").mockImplementation(() => undefined);
    const program = new Command();
    registerModelPipeline(program);
    const repository = join(folder, "repository");
    const args = ["--folder", repository, "--python", daliPython, "--json"];
    await program.parseAsync(["pipeline", "dinov2-small", ...args], { from: "user" });
    const { models, files: written } = JSON.parse(log.mock.calls.flat().join("\n"));
    expect(models).toEqual([
      "dinov2_small_dali_preprocess",
      "dinov2_small_dali",
      "dinov2_small_dali_trt",
    ]);
    expect(written).toHaveLength(2);
    for (const model of models as string[]) {
      const file = join(repository, model, "config.pbtxt");
      expect(readModelConfig(await readFile(file, "utf8"), file).name).toBe(model);
    }
  }, 60_000);
});

const trained = await trainedModel();
const unavailable = missing !== "" ? missing : trained.missing;

describe.skipIf(unavailable !== "")(`embeddings${unavailable}`, () => {
  test("of a trained model have a cosine of at least 0.999 with those of the exact preprocessing", async () => {
    const { spec, path } = trained;
    const tower = imageTowerOf(spec);
    const results = await decoded(spec);
    const session = await openSession({ modelPath: path });
    const embed = async (data: Float32Array) => {
      const { shape, name } = imageTensor([new Uint8Array(data.length)], tower);
      const { outputs } = await session.run([{ name, dataType: "FP32", shape, data }]);
      const output = outputs.find((each) => each.name === embeddingTensor(spec, tower).name);
      const options = { count: 1, width: spec.embedding.width, modality: "image" } as const;
      return embeddingsOf(output, options)[0]!;
    };
    let lowest = { cosine: 1, name: "" };
    for (const [name, result] of results) {
      const file = await readFile(join(folder, name));
      const exact = normalised(await preprocess(file, tower.input, limits), tower.input);
      const [a, b] = [await embed(result), await embed(exact)];
      const cosine = a.reduce((sum, value, at) => sum + value * b[at]!, 0);
      if (cosine < lowest.cosine) lowest = { cosine, name };
    }
    await session.close();
    console.log(`lowest cosine of embeddings: ${lowest.cosine} (${lowest.name})`);
    expect(lowest.cosine).toBeGreaterThanOrEqual(0.999);
  }, 300_000);
});
