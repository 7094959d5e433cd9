import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { imageTowerOf, textTowerOf } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { imageTensor, pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { productsNotInHalf } from "../check/half-products.ts";
import { sampleTokenIds } from "../check/token-samples.ts";
import { type ModelInfo, modelInfo, sha256Of } from "../files/model-info.ts";
import { preparedPath, selectModel } from "../files/prepared-file.ts";
import { draftModelFile, publishFile, sizeOf } from "../files/publish-file.ts";
import { displayPath, ofFiles } from "../files/user-errors.ts";
import { type OnnxFile, readOnnx, tensorTypes } from "../onnx/reader.ts";
import { ensurePython, onnxruntimePackages, runPython } from "../python/python-environment.ts";
import { type Measured, measure, type TowerInput } from "./measure-conversion.ts";
import { ensureOptimised, preparedInfo, readPhotos } from "./optimise.ts";

/** Precisions that ONNX Runtime's Python tools convert to. */
export const convertPrecisions = ["fp16", "int8"] as const;
export type ConvertPrecision = (typeof convertPrecisions)[number];

/** Minimum cosine between embeddings of the file and of its source; otherwise the file is rejected. */
const defaultMinCosine: Readonly<Record<ConvertPrecision, number>> = { fp16: 0.9999, int8: 0.98 };

interface ConvertOptions {
  readonly keepGraph?: boolean;
  /** @default 1 */
  readonly rounds?: number;
  /** @default 0.9999 for fp16, 0.98 for int8 */
  readonly minCosine?: number;
  readonly python?: string;
  /** @default "image" */
  readonly modality?: Modality;
  /** Inputs on which the files are compared. @default the sample photos of this checkout, or rows of token ids */
  readonly samples?: readonly TowerInput[];
  readonly onProgress: (line: string) => void;
  readonly signal?: AbortSignal;
}

/**
 * Writes the file of a precision with ONNX Runtime's Python tools, and compares it with the original.
 *
 * @throws {Error} if the embeddings differ too much; an existing file is kept
 */
export async function convertModel(
  spec: ModelSpec,
  source: string,
  file: string,
  precision: ConvertPrecision,
  options: ConvertOptions,
): Promise<{ readonly info: ModelInfo; readonly measured: readonly Measured[] }> {
  const { keepGraph, rounds = 1, onProgress, signal, modality = "image" } = options;
  const { minCosine = defaultMinCosine[precision] } = options;
  const samples: readonly TowerInput[] =
    options.samples ??
    (modality === "text"
      ? sampleTokenIds(textTowerOf(spec).input, spec.batching.maximum)
      : await readPhotos(spec));
  const python =
    options.python ?? (await ensurePython(onnxruntimePackages, { onProgress, signal }));
  const graph = keepGraph ? source : await ofFiles(ensureOptimised(spec, source));
  onProgress(`writing ${displayPath(file)} …`);
  const draft = await ofFiles(draftModelFile(file));
  try {
    const run = (...calibration: readonly string[]) => {
      const args = [precision, graph, draft.path, ...calibration];
      return runPython(python, "convert/convert.py", args, signal);
    };
    const printed =
      precision === "fp16"
        ? await run()
        : await withCalibration(spec, graph, samples as readonly Uint8Array[], run);
    if (precision === "fp16" && keepGraph) requireHalf(readOnnx(draft.path));
    const files = [source, draft.path] as const;
    const measured = await measure(spec, modality, files, {
      samples,
      rounds,
      limit: minCosine,
      onProgress,
    });
    const agreement = { images: samples.length, ...measured[0].agreement };
    const info: ModelInfo = {
      ...preparedInfo(await modelInfo(source), precision, agreement),
      sha256: await sha256Of(draft.path),
      bytes: (await sizeOf(draft.path)) ?? 0,
      versions: JSON.parse(printed) as ModelInfo["versions"],
    };
    await publishFile(draft.path, file, info);
    return { info, measured };
  } finally {
    await draft.discard();
  }
}

/** @throws {Error} if TensorRT would execute a matrix multiplication in FP32 */
function requireHalf(graph: OnnxFile): void {
  const [first, ...others] = productsNotInHalf(graph);
  if (first === undefined) return;
  const more = others.length === 0 ? "" : ` and ${others.length} more`;
  throw new Error(
    `the file was rejected: every matrix multiplication must be in half precision, got FP32 in ${first}${more}`,
  );
}

/** Writes photos as the input of a graph to a temporary file, for the measurement of value ranges. */
async function withCalibration<Result>(
  spec: ModelSpec,
  graph: string,
  photos: readonly Uint8Array[],
  work: (file: string) => Promise<Result>,
): Promise<Result> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-calibration-"));
  try {
    const takesPixels = readOnnx(graph).inputs[0]?.dataType === tensorTypes.uint8;
    const { data } = (takesPixels ? pixelTensor : imageTensor)(photos, imageTowerOf(spec));
    const file = join(folder, "images");
    await writeFile(file, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return await work(file);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Returns the path of the file of a precision next to a model, written if it is missing or derived from another model. */
export async function ensureConverted(
  spec: ModelSpec,
  source: string,
  precision: ConvertPrecision,
  onProgress: (line: string) => void,
): Promise<string> {
  const file = preparedPath(source, precision);
  const isCurrent = await selectModel(source, precision).catch(() => undefined);
  if (isCurrent === undefined) {
    await convertModel(spec, source, file, precision, { onProgress });
  }
  return file;
}
