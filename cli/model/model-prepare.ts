import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { type Command, Option } from "commander";
import type { Interrupt } from "../../artefact/interrupt.ts";
import { tensorrtFile } from "../../contract/model-config.ts";
import { imageTowerOf, textTowerOf } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { fp32Kinds } from "../../contract/repository-files.ts";
import { firstStronglyTyped } from "../../contract/triton-releases.ts";
import { UserError } from "../../contract/user-error.ts";
import { imageTensor, pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { productsNotInHalf } from "../../model-tools/check/half-products.ts";
import { sampleTokenIds } from "../../model-tools/check/token-samples.ts";
import {
  ensureOptimised,
  optimiseModel,
  preparedInfo,
  readPhotos,
} from "../../model-tools/convert/optimise.ts";
import { type ModelInfo, modelInfo, sha256Of } from "../../model-tools/files/model-info.ts";
import { preparedPath, selectModel } from "../../model-tools/files/prepared-file.ts";
import { draftModelFile, publishFile, sizeOf } from "../../model-tools/files/publish-file.ts";
import { modelFile } from "../../model-tools/generate/generate.ts";
import { type OnnxFile, readOnnx, tensorTypes } from "../../model-tools/onnx/reader.ts";
import { numberFrom, wholeNumber } from "../shared/option-values.ts";
import { displayPath } from "../shared/project.ts";
import { interruptible } from "./interruptible.ts";
import { type Measured, measure, type TowerInput } from "./measure-conversion.ts";
import { weightsHint } from "./model-option.ts";
import {
  cosineText,
  megabytes,
  ofFiles,
  requireNoFolder,
  requireReplaceable,
} from "./model-output.ts";
import { modalityOption, modelArgument, namedModel, requireTower } from "./named-model.ts";
import { ensurePython, onnxruntimePackages, runPython } from "./python-environment.ts";

/** Precisions that ONNX Runtime's Python tools convert to. */
const convertPrecisions = ["fp16", "int8"] as const;
type ConvertPrecision = (typeof convertPrecisions)[number];

/** Minimum cosine between embeddings of the file and of its source; otherwise the file is rejected. */
const defaultMinCosine: Readonly<Record<ConvertPrecision, number>> = { fp16: 0.9999, int8: 0.98 };

interface PrepareArguments {
  readonly weights?: string;
  readonly output?: string;
  readonly images?: string;
  readonly force?: true;
  readonly json?: true;
}

interface ConvertArguments extends PrepareArguments {
  readonly precision: ConvertPrecision;
  readonly modality?: Modality;
  readonly keepGraph?: true;
  readonly minCosine?: number;
  readonly rounds: number;
  readonly python?: string;
}

/** `clipstack model optimise` and `convert`: write the files that `MODEL_PRECISION` selects. */
export function registerModelPrepare(model: Command): void {
  registerOptimise(model);
  registerConvert(model);
}

function registerOptimise(model: Command): void {
  fileOptions(
    model
      .command("optimise")
      .description(
        "write a model file with the same weights in a graph that takes 8-bit pixels, faster for the vision transformers of " +
          "CLIP, for MODEL_PRECISION=fp32-optimised of the embed server and for <model>_u8",
      ),
    "model.fp32-optimised.onnx next to the model",
  )
    .addHelpText(
      "after",
      `
The manifest <file>.json contains the checksum of the source and the agreement of both files on photos.

Examples:
  $ npx clipstack model optimise
  $ npx clipstack model optimise dinov2-small
  $ npx clipstack model optimise --weights weights/vit-b-32.onnx --json`,
    )
    .action(optimise);
}

function registerConvert(model: Command): void {
  fileOptions(
    model
      .command("convert")
      .description(
        "write an fp16 or int8 model file for MODEL_PRECISION of the embed server, and measure its agreement with the " +
          "original and its speed",
      )
      .addOption(
        new Option("--precision <precision>", "fp16: for a GPU; int8: for a CPU")
          .choices(convertPrecisions)
          .makeOptionMandatory(),
      )
      .addOption(modalityOption())
      .option("--keep-graph", "convert the graph of the model instead of the optimised one"),
    `model.<precision>.onnx next to the model; fp16 with --keep-graph: ${tensorrtFile}`,
  )
    .option(
      "--min-cosine <cosine>",
      "lowest accepted cosine to an embedding of the original (default: fp16 0.9999, int8 0.98)",
      numberFrom(0, 1),
    )
    .option(
      "--rounds <number>",
      "number of rounds that measure both files alternately",
      wholeNumber(1, 100),
      5,
    )
    .option(
      "--python <program>",
      "Python that has onnx and onnxruntime; by default they are installed once",
    )
    .addHelpText(
      "after",
      `
The conversion uses ONNX Runtime's Python tools. They require Python 3.11 or newer; the versions that are locked in
model-tools/python/convert are installed into $XDG_CACHE_HOME/clipstack or ~/.cache/clipstack. The optimised graph takes
8-bit pixels, like <model>_u8. With --keep-graph, input and output stay those of the model, and the file matches
its config.pbtxt. An fp16 file with --keep-graph is what TensorRT of Triton ${firstStronglyTyped} and newer requires: half precision inside, FP32 inputs and
outputs, no matrix multiplication left in FP32. The speed is measured on this CPU, which converts around every fp16 operator: measure fp16 on a GPU.

Exit code 1: the file was rejected.

Examples:
  $ npx clipstack model convert --precision int8
  $ npx clipstack model convert --precision fp16 --keep-graph
  $ npx clipstack model convert siglip2-base-224 --modality text --precision fp16 --keep-graph --json`,
    )
    .action(async (name: string | undefined, args: ConvertArguments) => {
      await interruptible("conversion", (interrupt) => convert(name, args, interrupt));
    });
}

function fileOptions(command: Command, output: string): Command {
  return command
    .argument("[model]", modelArgument)
    .option(
      "--weights <file>",
      "default: the file of the model in the model repository of this checkout",
    )
    .addOption(weightsHint())
    .option("--output <file>", `default: ${output}`)
    .option("--images <folder>", "photos for the comparison, default: the samples of this checkout")
    .option("--force", "replace a file that was not generated by this project")
    .option("--json", "print the manifest as JSON");
}

async function optimise(name: string | undefined, args: PrepareArguments): Promise<void> {
  const { spec, source, file } = await filesOf(name, args, "fp32-optimised");
  console.error(`writing ${displayPath(file)} …`);
  const info = await ofFiles(optimiseModel(spec, source, file, await photosOf(spec, args)));
  if (args.json) console.log(JSON.stringify({ file: displayPath(file), ...info }, null, 2));
  else reportPrepared(file, info);
}

async function convert(
  name: string | undefined,
  args: ConvertArguments,
  { signal }: Interrupt,
): Promise<void> {
  const { precision, keepGraph = false, rounds, minCosine, python, modality = "image" } = args;
  if (modality === "text" && !(keepGraph && precision === "fp16")) {
    throw new UserError("--modality text requires --precision fp16 and --keep-graph");
  }
  const isForTensorrt = keepGraph && precision === "fp16";
  const { spec, source, file } = await filesOf(name, args, precision, { modality, isForTensorrt });
  const samples = modality === "text" ? undefined : await photosOf(spec, args);
  const onProgress = (line: string) => console.error(line);
  const options = { keepGraph, rounds, minCosine, python, samples, onProgress, signal, modality };
  const { info, measured } = await convertModel(spec, source, file, precision, options);
  if (args.json) {
    console.log(JSON.stringify({ file: displayPath(file), ...info, measured }, null, 2));
    return;
  }
  reportPrepared(file, info, modality);
  if (isForTensorrt) console.log("Every matrix multiplication is in half precision.");
  for (const { batch, speed, rounds: ratios, agreement } of measured) {
    const range = `${factor(Math.min(...ratios))} to ${factor(Math.max(...ratios))}`;
    const lowest = cosineText(agreement.minCosine);
    console.log(
      `batch ${batch}: lowest cosine ${lowest}; ${factor(speed)} × the speed of the original on this CPU (${range} in ${rounds} rounds)`,
    );
  }
}

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

/** @throws {Error} if the embeddings differ too much; an existing file is kept */
async function convertModel(
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
    const measured = await measure(spec, modality, files, { samples, rounds, limit: minCosine });
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

/** @throws {UserError} if the output must not be written */
async function filesOf(
  name: string | undefined,
  args: PrepareArguments,
  precision: NonNullable<ModelInfo["precision"]>,
  { modality, isForTensorrt }: { readonly modality: Modality; readonly isForTensorrt: boolean } = {
    modality: "image",
    isForTensorrt: false,
  },
): Promise<{ readonly spec: ModelSpec; readonly source: string; readonly file: string }> {
  const spec = namedModel(name);
  requireTower(spec, modality);
  const source =
    args.weights === undefined ? modelFile(spec, fp32Kinds[modality]) : resolve(args.weights);
  const defaultFile = isForTensorrt
    ? join(dirname(source), tensorrtFile)
    : preparedPath(source, precision);
  const file = args.output === undefined ? defaultFile : resolve(args.output);
  if (file === source) throw new UserError(`--output must not be the model itself, got '${file}'`);
  await requireNoFolder(file);
  const before = await modelInfo(file).catch(() => undefined);
  if (!args.force && before?.precision === undefined) await requireReplaceable(file);
  return { spec, source, file };
}

function photosOf(spec: ModelSpec, { images }: PrepareArguments): Promise<readonly Uint8Array[]> {
  return ofFiles(readPhotos(spec, images));
}

export function reportPrepared(file: string, info: ModelInfo, modality: Modality = "image"): void {
  const samples = modality === "image" ? "photos" : "rows of token ids";
  const { bytes, sha256, precision, agreement } = info;
  console.log(`${displayPath(file)}: ${precision}, ${megabytes(bytes)} MB, sha256 ${sha256}`);
  if (agreement === undefined) return;
  const { minCosine, meanCosine, maxDifference, images } = agreement;
  const cosines = `cosine to the original ${cosineText(minCosine)} lowest, ${cosineText(meanCosine)} mean`;
  const neighbours =
    agreement.nearestNeighbours === undefined
      ? ""
      : `, same nearest neighbour for ${Math.round(100 * agreement.nearestNeighbours)} % of the ${samples}`;
  console.log(
    `${cosines}, largest difference ${maxDifference.toPrecision(2)}${neighbours}; ${images} ${samples}.`,
  );
  if (info.weights === "random") {
    console.log(
      "Random weights: the speed is the same as with trained weights, the cosine is not.",
    );
  }
}

function factor(value: number): string {
  return value.toFixed(2);
}
