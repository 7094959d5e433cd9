import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { type Command, InvalidArgumentError, Option } from "commander";
import { readBenchImages } from "../../bench/src/bench-images.ts";
import { median } from "../../bench/src/statistics.ts";
import { openclipVitB32 } from "../../inference-image/src/contract/model-signature.ts";
import { normalised } from "../../inference-image/src/engine/image-tensor.ts";
import { openSession } from "../../inference-image/src/engine/onnx-session.ts";
import { createPreprocessor } from "../../inference-image/src/engine/preprocess.ts";
import type { ModelSession } from "../../inference-image/src/engine/types.ts";
import { compareModels } from "../../inference-image/src/model/compare-models.ts";
import {
  type ConvertedModel,
  type ConvertPrecision,
  convertPrecision,
  convertPrecisions,
} from "../../inference-image/src/model/convert-precision.ts";
import { repositoryModel } from "../../inference-image/src/model/generate.ts";
import { type ModelInfo, modelInfo } from "../../inference-image/src/model/model-info.ts";
import { type OnnxFile, readOnnx } from "../../inference-image/src/model/onnx-reader.ts";
import { onnxChunks } from "../../inference-image/src/model/onnx-writer.ts";
import { draftModelFile } from "../../inference-image/src/model/publish-file.ts";
import { sourceChecksum } from "../../inference-image/src/model/source-checksum.ts";
import { isStandard } from "../../inference-image/src/model/standard-model.ts";
import {
  megabytes,
  ofFiles,
  requireNoFolder,
  requireReplaceable,
  shownCosine,
  shownPath,
} from "./model-output.ts";
import { UserError } from "./user-error.ts";

const sampleImages = fileURLToPath(new URL("../../bench/samples/", import.meta.url));

/** A variant whose embeddings are further away than this is refused. */
const defaultMinCosine: Readonly<Record<ConvertPrecision, number>> = { fp16: 0.9999, int8: 0.98 };

const batchSizes = [1, openclipVitB32.maxBatchSize] as const;
/** Runs of a model in one round: about as long at each batch size. */
const runsOf = (batch: number) => (batch === 1 ? 9 : 1);
const maxPixels = 50_000_000;

export interface ConvertArguments {
  readonly precision: ConvertPrecision;
  readonly model?: string;
  readonly output?: string;
  readonly images?: string;
  readonly minCosine?: number;
  readonly rounds: number;
  readonly force?: true;
  readonly json?: true;
}

/** `clipstack model convert`: the same weights in fewer bits. */
export function registerModelConvert(model: Command): void {
  model
    .command("convert")
    .description(
      "write an fp16 or int8 variant of a model file, and print how near it is to the original and how much faster",
    )
    .addOption(
      new Option(
        "--precision <precision>",
        "fp16: weights and computation, for a GPU; int8: products with weights, for a CPU",
      )
        .choices(convertPrecisions)
        .makeOptionMandatory(),
    )
    .option("--model <file>", "default: the standard file of the model repository of this checkout")
    .option("--output <file>", "default: model.<precision>.onnx beside the model")
    .option(
      "--images <folder>",
      "what both are compared on, default: the sample images of this checkout",
    )
    .option(
      "--min-cosine <cosine>",
      "a variant with an embedding further from the original's is refused (default: fp16 0.9999, int8 0.98)",
      cosineOf,
    )
    .option("--rounds <number>", "how often both are measured, in turn", roundsOf, 5)
    .option("--force", "replace a file that something else than this project wrote")
    .option("--json", "print what was written and measured as JSON")
    .addHelpText(
      "after",
      `
Input and output stay FP32, so the variant takes the place of the original with the same config.pbtxt. Speed is that of
ONNX Runtime on this machine's CPU, which converts around every fp16 operator: measure fp16 on the GPU that will run it.
The embed server makes its own int8 form (MODEL_PRECISION=int8, \`model prepare\`), which is faster than this portable one.

Exit code 1: the variant was refused.

Examples:
  $ npx clipstack model convert --precision fp16
  $ npx clipstack model convert --precision int8 --model weights/vit-b-32.onnx --output weights/int8.onnx --json`,
    )
    .action(convert);
}

async function convert(args: ConvertArguments): Promise<void> {
  const source = args.model === undefined ? repositoryModel : resolve(args.model);
  const file = args.output === undefined ? besideOf(source, args.precision) : resolve(args.output);
  if (file === source) throw new UserError(`--output must not be the model itself, got '${file}'`);
  await requireNoFolder(file);
  const minCosine = args.minCosine ?? defaultMinCosine[args.precision];
  const graph = await ofFiles((async () => readOnnx(source))());
  if (!isStandard(graph)) {
    throw new UserError(
      `${shownPath(source)} must take image FP32 [batch, 3, 224, 224] and give embedding FP32 [batch, 512]`,
    );
  }
  if (!args.force) await requireOwn(file);
  const original = await modelInfo(source);
  const checksum = await sourceChecksum(source, original);
  const planes = await readPlanes(args.images ?? sampleImages);

  console.error(`writing ${shownPath(file)} …`);
  const draft = await draftModelFile(file).catch((error: NodeJS.ErrnoException) => {
    throw new UserError(`--output ${shownPath(file)} cannot be written: ${error.code}`, {
      cause: error,
    });
  });
  try {
    let refusal = new Error("the variant was refused: no number of attention heads fits");
    for (const { model, tensors } of candidatesOf(graph, args.precision)) {
      await draft.write(onnxChunks(model));
      const measured = await measure(source, draft.path, planes, args.rounds, minCosine);
      if (measured instanceof Error) {
        refusal = measured;
        continue;
      }
      const info = await draft.publish((sha256, bytes) => ({
        schema: 1,
        sha256,
        bytes,
        source: "derived",
        weights: original.weights,
        seed: original.seed,
        architecture: original.architecture,
        opset: model.opset,
        derivedFrom: checksum,
        parts: [args.precision],
      }));
      report(args, { file, original, info, tensors, minCosine, images: planes.length, measured });
      return;
    }
    throw refusal;
  } finally {
    await draft.discard();
  }
}

/** @throws {UserError} where the file cannot be converted */
function* candidatesOf(graph: OnnxFile, precision: ConvertPrecision): Generator<ConvertedModel> {
  try {
    yield* convertPrecision(graph, precision);
  } catch (error) {
    throw new UserError((error as Error).message, { cause: error });
  }
}

function besideOf(model: string, precision: ConvertPrecision): string {
  return join(dirname(model), `${basename(model, ".onnx")}.${precision}.onnx`);
}

/** A variant can be made again. @throws {UserError} */
async function requireOwn(file: string): Promise<void> {
  const info = await modelInfo(file).catch(() => undefined);
  const isVariant = convertPrecisions.some((precision) => info?.parts?.join() === precision);
  if (info?.source !== "derived" || !isVariant) await requireReplaceable(file);
}

/** The images of a folder as the model takes them: `[3, 224, 224]` each. */
async function readPlanes(folder: string): Promise<readonly Float32Array[]> {
  const preprocessor = createPreprocessor({ maxPixels });
  try {
    const prepare = async (bytes: Uint8Array) => normalised(await preprocessor.run(bytes));
    return (await readBenchImages(folder, prepare)).map(({ tensor }) => tensor);
  } finally {
    await preprocessor.close();
  }
}

/** What was measured at one batch size. */
interface Measured {
  readonly batch: number;
  readonly minCosine: number;
  readonly meanCosine: number;
  /** Times the speed of the original, of each round and the median of them. */
  readonly speed: number;
  readonly rounds: readonly number[];
  /** Median times of a run in ONNX Runtime. */
  readonly originalMs: number;
  readonly variantMs: number;
}

/** @returns Why the variant is refused, where it is. */
async function measure(
  original: string,
  variant: string,
  planes: readonly Float32Array[],
  rounds: number,
  limit: number,
): Promise<readonly Measured[] | Error> {
  const sessions: ModelSession[] = [];
  try {
    sessions.push(await openSession({ modelPath: original }));
    // the path of a draft says nothing to whoever reads the message
    const opening = openSession({ modelPath: variant });
    sessions.push(
      await opening.catch((error: Error) => {
        const reason = error.message.replace(
          /^.*cannot be loaded: (Load model from \S+ failed: ?)?/,
          "",
        );
        throw new Error(`the variant was refused: ONNX Runtime cannot load it: ${reason}`);
      }),
    );
    const [first, second] = sessions as [ModelSession, ModelSession];
    const measured: Measured[] = [];
    for (const batch of batchSizes) {
      console.error(`comparing at batch ${batch} …`);
      const batches = batchesOf(planes, batch);
      const agreement = compareModels(await embed(first, batches), await embed(second, batches));
      if (!(agreement.minCosine >= limit)) {
        return new Error(
          `the variant was refused: the least cosine to the original is ${shownCosine(agreement.minCosine)} at batch ${batch}, less than ${limit}`,
        );
      }
      const { minCosine, meanCosine } = agreement;
      measured.push({
        batch,
        minCosine,
        meanCosine,
        ...(await race(first, second, batches, rounds)),
      });
    }
    return measured;
  } finally {
    for (const session of sessions) await session.close();
  }
}

/** Batches that are full, each image in one at least: the last begins anew. */
function batchesOf(planes: readonly Float32Array[], batch: number): readonly Float32Array[][] {
  return Array.from({ length: Math.ceil(planes.length / batch) }, (_, index) =>
    Array.from({ length: batch }, (_, i) => planes[(index * batch + i) % planes.length]!),
  );
}

async function runBatch(session: ModelSession, batch: readonly Float32Array[]) {
  const [{ name, dims }] = openclipVitB32.inputs;
  const data = new Float32Array(batch.length * batch[0]!.length);
  for (const [index, image] of batch.entries()) data.set(image, index * image.length);
  return session.run([{ name, dataType: "FP32", shape: [batch.length, ...dims], data }]);
}

async function embed(
  session: ModelSession,
  batches: readonly (readonly Float32Array[])[],
): Promise<readonly Float32Array[]> {
  const [{ dims }] = openclipVitB32.outputs;
  const vectors: Float32Array[] = [];
  for (const batch of batches) {
    const [output] = (await runBatch(session, batch)).outputs;
    if (output?.dataType !== "FP32" || output.data.length !== batch.length * dims[0]) {
      throw new Error(`a model gives no ${dims[0]} floats an image`);
    }
    for (let i = 0; i < batch.length; i++) {
      vectors.push(output.data.slice(i * dims[0], (i + 1) * dims[0]));
    }
  }
  return vectors;
}

/** Both in turn, the order reversed every round, so that what else the machine does falls on both. */
async function race(
  original: ModelSession,
  variant: ModelSession,
  batches: readonly (readonly Float32Array[])[],
  rounds: number,
): Promise<Pick<Measured, "speed" | "rounds" | "originalMs" | "variantMs">> {
  const times = new Map<ModelSession, number[]>([
    [original, []],
    [variant, []],
  ]);
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? [original, variant] : [variant, original];
    for (const session of order) {
      const own: number[] = [];
      for (let run = 0; run < runsOf(batches[0]!.length); run++) {
        own.push((await runBatch(session, batches[run % batches.length]!)).inferUs / 1000);
      }
      times.get(session)!.push(medianOf(own));
    }
  }
  const [originals, variants] = [times.get(original)!, times.get(variant)!];
  const ratios = originals.map((value, round) => value / variants[round]!);
  return {
    speed: medianOf(ratios),
    rounds: ratios,
    originalMs: medianOf(originals),
    variantMs: medianOf(variants),
  };
}

function medianOf(values: readonly number[]): number {
  return median(values) ?? Number.NaN;
}

interface Conversion {
  readonly file: string;
  readonly original: ModelInfo;
  readonly info: ModelInfo;
  readonly tensors: number;
  readonly minCosine: number;
  readonly images: number;
  readonly measured: readonly Measured[];
}

function report(args: ConvertArguments, conversion: Conversion): void {
  const { file, original, info, tensors, minCosine, images, measured } = conversion;
  if (args.json) {
    const { sha256, bytes, weights } = original;
    const value = {
      file: shownPath(file),
      ...info,
      precision: args.precision,
      original: { sha256, bytes, weights },
      images,
      minCosine,
      measured,
    };
    console.log(JSON.stringify(value, null, 2));
    return;
  }
  console.log(
    `${shownPath(file)} written: ${megabytes(info.bytes)} MB of ${megabytes(original.bytes)} MB, sha256 ${info.sha256}`,
  );
  const what = {
    fp16: `${tensors} tensors of weights and the computation in half precision`,
    int8: `${tensors} matrices as 8-bit integers, one scale a column`,
  } as const;
  console.log(`${args.precision}: ${what[args.precision]}; input and output stay FP32.`);
  for (const { batch, ...of } of measured) {
    const cosines = `cosine to the original ${shownCosine(of.minCosine)} least, ${shownCosine(of.meanCosine)} mean`;
    const range = `${factor(Math.min(...of.rounds))} to ${factor(Math.max(...of.rounds))}`;
    console.log(
      `batch ${String(batch).padStart(2)}: ${cosines}; ${factor(of.speed)} times as fast on this CPU (${range}, rounds in turn: ${of.rounds.length})`,
    );
  }
  if (args.precision === "fp16" && process.arch === "x64") {
    console.log(
      "This CPU computes it in float32, with conversions: fp16 is half the file here, and for a GPU's speed.",
    );
  }
  if (info.weights === "random") {
    console.log("Random weights: the speed is that of trained ones, the cosine is not.");
  }
  console.log(`Compared on ${images} images; less than ${minCosine} would have been refused.`);
}

function factor(value: number): string {
  return value.toFixed(2);
}

function cosineOf(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value >= 0 && value <= 1)) {
    throw new InvalidArgumentError("It must be 0 to 1.");
  }
  return value;
}

function roundsOf(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > 100) {
    throw new InvalidArgumentError("It must be 1 to 100.");
  }
  return value;
}
