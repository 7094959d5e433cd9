import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { preprocess } from "../../inference/preprocess/preprocess.ts";
import { compareModels } from "../check/compare-models.ts";
import { embedWith } from "../check/run-model.ts";
import { type ModelInfo, modelInfo, readSidecar } from "../files/model-info.ts";
import { preparedPath } from "../files/prepared-file.ts";
import { draftModelFile, sizeOf } from "../files/publish-file.ts";
import { requireImageTower, specOfFile } from "../graph/model-structure.ts";
import { recogniseTower } from "../graph/recognise-tower.ts";
import { towerGraph } from "../graph/tower-graph.ts";
import { type OnnxFile, readOnnx, tensorTypes } from "../onnx/reader.ts";
import { onnxChunks } from "../onnx/writer.ts";
import { pixelInputModel } from "./pixel-input.ts";

/** Incremented when the graph changes, so that {@link ensureOptimised} writes existing files again. */
const optimiserVersion = "5";

/** For a float32 source, only the order of additions differs. */
const exactness = { minCosine: 0.999_999, maxDifference: 2e-5 } as const;
/** For a half-precision source, rounding depends on the order of operations. */
const halfExactness = { minCosine: 0.999_99, maxDifference: 5e-3 } as const;

const samples = fileURLToPath(new URL("../samples/", import.meta.url));
const maxPixels = 50_000_000;

/**
 * Reads the photos on which a prepared file is compared with its source.
 *
 * @param folder - Folder of JPEG, PNG and WebP files.
 * @returns `[height, width, 3]` 8-bit RGB each, in the order of the file names.
 * @throws {Error} one line, if there is no image or one cannot be decoded
 */
export async function readPhotos(
  spec: ModelSpec,
  folder: string = samples,
): Promise<readonly Uint8Array[]> {
  const { input } = imageTowerOf(spec);
  const names = (await readdir(folder)).filter((name) => /\.(jpe?g|png|webp)$/i.test(name)).sort();
  if (names.length === 0) throw new Error(`${folder}: must have a .jpg, .png or .webp file`);
  return Promise.all(
    names.map(async (name) => {
      const file = join(folder, name);
      return preprocess(await readFile(file), input, { maxPixels }).catch((error: Error) => {
        throw new Error(`${file}: ${error.message}`, { cause: error });
      });
    }),
  );
}

/**
 * Writes a model file with the same weights that takes 8-bit pixels; its graph includes the normalisation. If the image tower is
 * recognised, the graph also computes faster: the normalisation is folded into the patches, the last block computes the class token
 * only. Otherwise the original graph follows a conversion of the pixels. Uses standard ONNX operators only. The manifest contains the
 * agreement.
 *
 * @param source - Image tower with the FP32 input of the spec.
 * @param file - Replaced only if the embeddings of the photos agree.
 * @param photos - `[height, width, 3]` 8-bit RGB each. @default those of {@link readPhotos}
 * @throws {Error} one line, if the source cannot be read or does not fit the spec, or the embeddings differ
 */
export async function optimiseModel(
  spec: ModelSpec,
  source: string,
  file: string,
  photos?: readonly Uint8Array[],
): Promise<ModelInfo> {
  const original = await modelInfo(source);
  const graph = readOnnx(source);
  requireImageTower(spec, graph);
  const limits = isHalf(graph) ? halfExactness : exactness;
  const images = photos ?? (await readPhotos(spec));
  const expected = await embedWith(spec, source, images);
  const draft = await draftModelFile(file);
  try {
    let last = "";
    for (const { parts, opset, chunks } of pixelGraphs(specOfFile(spec, "image", graph), graph)) {
      await draft.write(chunks());
      const agreement = compareModels(expected, await embedWith(spec, draft.path, images));
      const { minCosine, maxDifference } = agreement;
      if (minCosine >= limits.minCosine && maxDifference <= limits.maxDifference) {
        return await draft.publish((sha256, bytes) => ({
          ...preparedInfo(original, "fp32-optimised", { images: images.length, ...agreement }),
          ...{ sha256, bytes, opset, parts },
          versions: { optimiser: optimiserVersion, node: process.versions.node },
        }));
      }
      last = `lowest cosine ${minCosine}, largest difference ${maxDifference}`;
    }
    throw new Error(`${source}: the optimised graph returns different embeddings: ${last}`);
  } finally {
    await draft.discard();
  }
}

/** Candidates for the graph with pixel input, fastest first. The number of attention heads may not follow from the source. */
function* pixelGraphs(spec: ModelSpec, source: OnnxFile) {
  const tower = imageTowerOf(spec);
  const { width, height } = tower.input.size;
  const found = recogniseTower(source, tower.output);
  const recognised = "tower" in found && !found.tower.unitLength ? found.tower : undefined;
  if (recognised?.imageSide === width && recognised.imageSide === height) {
    for (const heads of recognised.heads) {
      const model = towerGraph(spec, recognised, heads);
      yield { parts: ["graph"], opset: model.opset, chunks: () => onnxChunks(model) };
    }
  }
  const opset = source.opsets.get("");
  yield { parts: ["input"], opset, chunks: () => [pixelInputModel(source, tower)] };
}

/**
 * Returns the path of the optimised file of a model, written if it is missing or derived from another model or version.
 * A file of another program is kept. Safe to call from several processes.
 */
export async function ensureOptimised(
  spec: ModelSpec,
  source: string,
  file = preparedPath(source, "fp32-optimised"),
): Promise<string> {
  const [size, manifest, { sha256 }] = await Promise.all([
    sizeOf(file),
    readSidecar(file),
    modelInfo(source),
  ]);
  if (size !== undefined && size > 0) {
    if (manifest?.precision === undefined) return file;
    const isCurrent =
      manifest.bytes === size &&
      manifest.derivedFrom === sha256 &&
      manifest.versions?.optimiser === optimiserVersion;
    if (isCurrent) return file;
  }
  await optimiseModel(spec, source, file);
  return file;
}

/** Returns the manifest of an optimised model, without the checksum and size of its file. */
export function preparedInfo(
  original: ModelInfo,
  precision: NonNullable<ModelInfo["precision"]>,
  agreement: NonNullable<ModelInfo["agreement"]>,
): Omit<ModelInfo, "sha256" | "bytes"> {
  const { weights, model, seed, architecture, sha256 } = original;
  return {
    schema: 1,
    source: "derived",
    weights,
    model,
    seed,
    architecture,
    derivedFrom: sha256,
    precision,
    agreement,
  };
}

function isHalf({ initializers }: OnnxFile): boolean {
  return [...initializers.values()].some(({ dataType }) => dataType === tensorTypes.half);
}
