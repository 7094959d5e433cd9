import { copyFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { PhotoLabel } from "../../examples/photo-dedupe/evaluate.ts";
import { hashDistance } from "../../examples/photo-dedupe/perceptual-hash.ts";
import { readPhoto } from "../../examples/photo-dedupe/read-photo.ts";
import { type PreprocessMode, preprocess } from "../../inference/preprocess/preprocess.ts";
import { makePhotos } from "../../lab/dedupe/make-photos.ts";
import {
  bestDuplicateScore,
  cosines,
  type DuplicateScore,
  harmonicMean,
  nearestNeighbours,
  neighbourAgreement,
} from "../../model-tools/check/accuracy.ts";
import { compareModels } from "../../model-tools/check/compare-models.ts";
import { embedWith } from "../../model-tools/check/run-model.ts";
import { trainedModel } from "../../model-tools/fetch/test-trained-model.ts";
import { preparedPath } from "../../model-tools/files/prepared-file.ts";
import { ensurePython, onnxruntimePackages } from "../../model-tools/python/python-environment.ts";
import { clipstack } from "../test-programs.ts";

/**
 * Accuracy of precisions and of `PREPROCESSING=fast` with trained weights, on the labelled photos of `npm run demo:dedupe`. The
 * figures are printed, and stated in model-tools/README.md.
 */

const { spec, path, missing: noModel } = await trainedModel();
const python = await ensurePython(onnxruntimePackages, { onProgress: () => {} }).catch(
  (error: Error) => error,
);
const missing = noModel || (python instanceof Error ? ` (skipped: ${python.message})` : "");
const { input } = imageTowerOf(spec);
const maxPixels = 100_000_000;

describe.skipIf(missing !== "")(`accuracy with trained weights${missing}`, () => {
  let folder: string;
  let model: string;
  let labels: readonly PhotoLabel[];
  let originals: readonly string[];
  let pixels: readonly Uint8Array[];
  let exact: readonly Float32Array[];
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-accuracy-"));
    model = join(folder, "model.onnx");
    await copyFile(path, model);
    await copyFile(`${path}.json`, `${model}.json`);
    labels = await makePhotos(join(folder, "photos"));
    originals = labels.map(({ original }) => original);
    pixels = await Promise.all(
      labels.map(async ({ file }) =>
        preprocess(await readFile(join(folder, "photos", file)), input, { maxPixels }),
      ),
    );
    exact = await embedWith(spec, model, pixels, 16);
    print("fp32", scoreOf(exact), exact);
  }, 300_000);
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  const scoreOf = (vectors: readonly Float32Array[]) =>
    bestDuplicateScore(originals, cosines(vectors));

  function print(name: string, score: DuplicateScore, vectors?: readonly Float32Array[]): void {
    const { threshold, precision, recall } = score;
    const duplicates = `threshold ${threshold.toFixed(3)}, precision ${precision.toFixed(3)}, recall ${recall.toFixed(3)}`;
    const agreement = vectors === undefined ? "" : `; ${agreementText(vectors)}`;
    console.log(`${name}: ${duplicates}${agreement}`);
  }
  function agreementText(vectors: readonly Float32Array[]): string {
    const { minCosine, meanCosine } = compareModels(exact, vectors);
    const neighbours = neighbourAgreement(exact, vectors);
    return `cosine to fp32 ${minCosine.toFixed(5)} lowest, ${meanCosine.toFixed(5)} mean; same nearest neighbour ${neighbours.toFixed(3)}`;
  }

  async function convert(precision: "fp16" | "int8") {
    const args = ["--precision", precision, "--rounds", "1"];
    const { code, stderr } = await clipstack([
      ...["model", "convert", spec.name, "--weights", model, ...args],
    ]);
    expect(stderr).not.toContain("clipstack:");
    expect(code).toBe(0);
    const vectors = await embedWith(spec, preparedPath(model, precision), pixels, 16);
    print(precision, scoreOf(vectors), vectors);
    return vectors;
  }

  test("the nearest neighbour of most edited photos is another version of the same photo", () => {
    const neighbours = nearestNeighbours(exact);
    const counts = new Map<string, number>();
    for (const original of originals) counts.set(original, (counts.get(original) ?? 0) + 1);
    const edited = originals.flatMap((original, index) =>
      counts.get(original)! > 1 ? [originals[neighbours[index]!] === original] : [],
    );
    const share = edited.filter(Boolean).length / edited.length;
    console.log(`nearest neighbour is a version of the same photo: ${share.toFixed(3)}`);
    expect(share).toBeGreaterThan(0.9);
  });

  test("fp16 finds the same neighbours and duplicates", async () => {
    const vectors = await convert("fp16");
    expect(neighbourAgreement(exact, vectors)).toBeGreaterThan(0.97);
    expect(harmonicMean(scoreOf(vectors))).toBeGreaterThan(harmonicMean(scoreOf(exact)) - 0.01);
  }, 200_000);

  test("int8 finds nearly the same duplicates, although its embeddings differ", async () => {
    const vectors = await convert("int8");
    expect(neighbourAgreement(exact, vectors)).toBeGreaterThan(0.85);
    expect(harmonicMean(scoreOf(vectors))).toBeGreaterThan(harmonicMean(scoreOf(exact)) - 0.02);
  }, 300_000);

  test("the perceptual hash alone, for comparison", async () => {
    const hashes: string[] = [];
    for (const { file } of labels) {
      hashes.push((await readPhoto(join(folder, "photos", file))).hash);
    }
    const score = bestDuplicateScore(originals, (a, b) => -hashDistance(hashes[a]!, hashes[b]!));
    print("hash", score);
    expect(harmonicMean(score)).toBeGreaterThan(0.5);
  });

  test("each near-duplicate among the sample photos is the nearest neighbour of its original", async () => {
    const samples = new URL("../../model-tools/samples/", import.meta.url);
    const { images } = z
      .object({
        images: z.array(z.object({ file: z.string(), nearDuplicateOf: z.string().optional() })),
      })
      .parse(JSON.parse(await readFile(new URL("samples.json", samples), "utf8")));
    const files = await Promise.all(images.map(({ file }) => readFile(new URL(file, samples))));
    const own = await Promise.all(files.map((file) => preprocess(file, input, { maxPixels })));
    const neighbours = nearestNeighbours(await embedWith(spec, model, own, 16));
    const pairs = images.flatMap(({ nearDuplicateOf }, index) =>
      nearDuplicateOf === undefined ? [] : [[nearDuplicateOf, neighbours[index]!] as const],
    );
    expect(pairs.length).toBeGreaterThan(3);
    for (const [original, neighbour] of pairs) expect(images[neighbour]!.file).toBe(original);
  });

  // EfficientNet's own resize has no antialiasing and is not affected: this is CLIP's, which timm uses for these weights as well
  test("fast preprocessing finds the same neighbours and duplicates on large photos", async () => {
    const resize = { mode: "shortest-edge", edge: 256 } as const;
    const antialiased = { ...input, resize, filter: "bicubic" } as const;
    const large = await Promise.all(
      labels.slice(0, 60).map(({ file }) =>
        sharp(join(folder, "photos", file))
          .autoOrient()
          .resize({ width: 1600 })
          .jpeg({ quality: 92 })
          .toBuffer(),
      ),
    );
    const vectorsOf = async (mode: PreprocessMode) => {
      const images: Uint8Array[] = [];
      for (const file of large)
        images.push(await preprocess(file, antialiased, { maxPixels, mode }));
      return embedWith(spec, model, images, 16);
    };
    const [slow, fast] = [await vectorsOf("exact"), await vectorsOf("fast")];
    const agreement = neighbourAgreement(slow, fast);
    const { minCosine, meanCosine } = compareModels(slow, fast);
    const subjects = originals.slice(0, large.length);
    const [exactly, nearly] = [slow, fast].map((vectors) =>
      bestDuplicateScore(subjects, cosines(vectors)),
    );
    print("exact, large photos", exactly!);
    print("fast, large photos", nearly!);
    console.log(
      `fast: cosine to exact ${minCosine.toFixed(5)} lowest, ${meanCosine.toFixed(5)} mean; same nearest neighbour ${agreement.toFixed(3)}`,
    );
    expect(minCosine).toBeGreaterThan(0.999);
    expect(agreement).toBeGreaterThan(0.95);
    expect(harmonicMean(nearly!)).toBeGreaterThan(harmonicMean(exactly!) - 0.01);
  }, 200_000);
});
