import { dirname, join, resolve } from "node:path";
import { type Command, Option } from "commander";
import type { Interrupt } from "../../artefact/interrupt.ts";
import { tensorrtFile } from "../../contract/model-config.ts";
import { requireTower } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { fp32Kinds } from "../../contract/repository-files.ts";
import { firstStronglyTyped } from "../../contract/triton-releases.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  type ConvertPrecision,
  convertModel,
  convertPrecisions,
} from "../../model-tools/convert/convert-model.ts";
import { optimiseModel, readPhotos } from "../../model-tools/convert/optimise.ts";
import { type ModelInfo, modelInfo } from "../../model-tools/files/model-info.ts";
import { preparedPath } from "../../model-tools/files/prepared-file.ts";
import { displayPath, ofFiles } from "../../model-tools/files/user-errors.ts";
import { modelFile } from "../../model-tools/generate/generate.ts";
import { median } from "../../target/stats/statistics.ts";
import { interruptible } from "../shared/interruptible.ts";
import { numberFrom, wholeNumber } from "../shared/option-values.ts";
import { weightsHint } from "./model-option.ts";
import {
  cosineText,
  megabytes,
  printResult,
  requireNoFolder,
  requireReplaceable,
} from "./model-output.ts";
import { modalityOption, modelArgument, namedModel } from "./named-model.ts";

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
      await interruptible("the conversion was stopped", (interrupt) =>
        convert(name, args, interrupt),
      );
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
  printResult(args, { file: displayPath(file), ...info }, () => preparedLines(file, info));
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
  const { info, measured: compared } = await convertModel(spec, source, file, precision, options);
  const measured = compared.map(({ batch, agreement, rounds: ratios }) => ({
    ...{ batch, agreement },
    speed: median(ratios) ?? Number.NaN,
    rounds: ratios,
  }));
  printResult(args, { file: displayPath(file), ...info, measured }, () => [
    ...preparedLines(file, info, modality),
    ...(isForTensorrt ? ["Every matrix multiplication is in half precision."] : []),
    ...measured.map(({ batch, speed, rounds: ratios, agreement }) => {
      const range = `${factor(Math.min(...ratios))} to ${factor(Math.max(...ratios))}`;
      const lowest = cosineText(agreement.minCosine);
      return `batch ${batch}: lowest cosine ${lowest}; ${factor(speed)} × the speed of the original on this CPU (${range} in ${rounds} rounds)`;
    }),
  ]);
}

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

function preparedLines(
  file: string,
  info: ModelInfo,
  modality: Modality = "image",
): readonly string[] {
  const samples = modality === "image" ? "photos" : "rows of token ids";
  const { bytes, sha256, precision, agreement } = info;
  const written = `${displayPath(file)}: ${precision}, ${megabytes(bytes)} MB, sha256 ${sha256}`;
  if (agreement === undefined) return [written];
  const { minCosine, meanCosine, maxDifference, images, nearestNeighbours } = agreement;
  const cosines = `cosine to the original ${cosineText(minCosine)} lowest, ${cosineText(meanCosine)} mean`;
  const neighbours =
    nearestNeighbours === undefined
      ? ""
      : `, same nearest neighbour for ${Math.round(100 * nearestNeighbours)} % of the ${samples}`;
  return [
    written,
    `${cosines}, largest difference ${maxDifference.toPrecision(2)}${neighbours}; ${images} ${samples}.`,
    ...(info.weights === "random"
      ? ["Random weights: the speed is the same as with trained weights, the cosine is not."]
      : []),
  ];
}

function factor(value: number): string {
  return value.toFixed(2);
}
