import { embeddingDims, openclipVitB32 } from "../contract/model-signature.ts";
import { type Agreement, compareModels } from "./compare-models.ts";
import { type ModelInfo, modelInfo } from "./model-info.ts";
import { type ModelStructure, structureOf } from "./model-structure.ts";
import { readOnnx } from "./onnx-reader.ts";
import { openModel, type RunnableModel } from "./run-model.ts";
import { unitLength } from "./standard-model.ts";

type ModelCheck =
  /** The model fits a `config.pbtxt` of the model repository. */
  | "fit"
  /** Embeddings have the expected width and finite values. */
  | "finite"
  /** Different images have different embeddings. */
  | "unequal"
  /** An image has the same embedding alone and in a full batch. */
  | "batch"
  /** An image has the same embedding at every position of a batch. */
  | "rows"
  /** Another file or runtime returns the same embeddings. */
  | "parity";

/** Result of one check. */
export interface ModelFinding {
  readonly check: ModelCheck;
  readonly ok: boolean;
  readonly message: string;
  /** Result of a comparison of vectors. */
  readonly agreement?: Pick<Agreement, "minCosine" | "maxDifference">;
}

export interface ModelReport {
  readonly info: ModelInfo;
  readonly structure: ModelStructure;
  readonly findings: readonly ModelFinding[];
  /** Limit of all comparisons, see {@link CheckModelOptions.limit}. */
  readonly limit: number;
  readonly ok: boolean;
}

/** Model that another one is compared with. */
export interface Counterpart {
  /** Path or description, for messages. */
  readonly name: string;
  readonly open: () => Promise<RunnableModel>;
  readonly batchSize: number;
}

export interface CheckModelOptions {
  /** `[224, 224, 3]` 8-bit RGB each; at least 32 different images, because full batches are run too. */
  readonly images: readonly Uint8Array[];
  /** @default - none */
  readonly against?: readonly Counterpart[];
  /** Largest difference of two values, relative to the largest value; a cosine may be as much below 1. */
  readonly limit: number;
}

const fullBatch = openclipVitB32.maxBatchSize;

/** Largest difference of equal embeddings: above the rounding of float32, below the difference of any two photos. */
const sameDifference = 1e-6;

/**
 * Describes a model file, runs it, and compares it with others.
 *
 * @throws {Error} with one line if a file is missing, damaged, or not an image model
 */
export async function checkModel(path: string, options: CheckModelOptions): Promise<ModelReport> {
  const { images, against = [], limit } = options;
  const file = readOnnx(path);
  const structure = structureOf(file);
  const info = await modelInfo(path);
  const findings: ModelFinding[] = [fitOf(structure)];

  const model = await openModel(path);
  let vectors: readonly Float32Array[];
  try {
    vectors = await model.embed(images, 1);
    const usable = finiteOf(vectors);
    findings.push(usable);
    if (usable.ok) {
      findings.push(unequalOf(vectors));
      if (structure.dynamicBatch) findings.push(...(await batchesOf(model, options, vectors)));
    }
  } finally {
    await model.close();
  }
  if (findings.every(({ check, ok }) => check !== "finite" || ok)) {
    // sequentially, because each model is loaded into memory
    for (const other of against) findings.push(await parityOf(vectors, images, other, limit));
  }
  return { info, structure, findings, limit, ok: findings.every(({ ok }) => ok) };
}

function fitOf({ fits, misfits }: ModelStructure): ModelFinding {
  if (fits.length > 0) {
    const files = fits.map((name) => `model_repository/${name}/config.pbtxt`).join(", ");
    return { check: "fit", ok: true, message: `fits ${files}` };
  }
  return { check: "fit", ok: false, message: `fits no config.pbtxt: ${misfits.join("; ")}` };
}

function finiteOf(vectors: readonly Float32Array[]): ModelFinding {
  const widths = [...new Set(vectors.map(({ length }) => length))];
  if (widths.join() !== String(embeddingDims)) {
    const message = `an embedding must have ${embeddingDims} values, got ${widths.join(" or ")}`;
    return { check: "finite", ok: false, message };
  }
  const bad = vectors.filter((vector) => !vector.every(Number.isFinite)).length;
  const zero = vectors.filter((vector) => vector.every((value) => value === 0)).length;
  if (bad + zero > 0) {
    const fault = bad > 0 ? "values that are not finite" : "only zeros";
    const message = `${bad || zero} of ${vectors.length} embeddings have ${fault}`;
    return { check: "finite", ok: false, message };
  }
  const message = `${vectors.length} images give ${embeddingDims} finite values each`;
  return { check: "finite", ok: true, message };
}

function unequalOf(vectors: readonly Float32Array[]): ModelFinding {
  const units = vectors.map(unitLength);
  let [equal, nearest] = [0, -1];
  for (const [index, unit] of units.entries()) {
    for (const other of units.slice(0, index)) {
      const { minCosine, maxDifference } = compareModels([unit], [other]);
      if (maxDifference <= sameDifference) equal++;
      nearest = Math.max(nearest, minCosine);
    }
  }
  if (equal > 0) {
    const message = `${equal} pairs of different images have the same embedding`;
    return { check: "unequal", ok: false, message };
  }
  const message = `no two embeddings are equal; the nearest have a cosine of ${nearest.toFixed(4)}`;
  return { check: "unequal", ok: true, message };
}

async function batchesOf(
  model: RunnableModel,
  { images, limit }: CheckModelOptions,
  vectors: readonly Float32Array[],
): Promise<readonly ModelFinding[]> {
  const batch = images.slice(0, fullBatch);
  const alone = vectors.slice(0, fullBatch);
  const together = await model.embed(batch, fullBatch);
  const reversed = (await model.embed([...batch].reverse(), fullBatch)).toReversed();
  return [
    compared("batch", limit, `batch 1 and batch ${fullBatch}`, compareModels(alone, together)),
    compared("rows", limit, "rows in reversed order", compareModels(together, reversed)),
  ];
}

async function parityOf(
  vectors: readonly Float32Array[],
  images: readonly Uint8Array[],
  { name, open, batchSize }: Counterpart,
  limit: number,
): Promise<ModelFinding> {
  const model = await open();
  let others: readonly Float32Array[];
  try {
    others = await model.embed(images, batchSize);
  } finally {
    await model.close();
  }
  const [width, got] = [vectors[0]!.length, others[0]!.length];
  if (width !== got) {
    const message = `${name}: must return ${width} values, got ${got}`;
    return { check: "parity", ok: false, message };
  }
  // only one of the two models may normalise its output
  const normalised = isUnit(vectors) === isUnit(others) ? "" : ", after normalisation";
  const agreement =
    normalised === ""
      ? compareModels(vectors, others)
      : compareModels(vectors.map(unitLength), others.map(unitLength));
  return compared("parity", limit, `${name}${normalised}`, agreement);
}

function isUnit(vectors: readonly Float32Array[]): boolean {
  return vectors.every((vector) => {
    const square = vector.reduce((sum, value) => sum + value * value, 0);
    return Math.abs(square - 1) < 1e-3;
  });
}

function compared(
  check: ModelFinding["check"],
  limit: number,
  subject: string,
  { minCosine, maxDifference }: Agreement,
): ModelFinding {
  const ok = maxDifference <= limit && minCosine >= 1 - limit;
  const figures = `largest difference ${percent(maxDifference)}, cosine at least ${minCosine.toFixed(7)}`;
  const rule = ok ? "" : `; the limit is ${Number((100 * limit).toPrecision(6))} %`;
  return {
    check,
    ok,
    message: `${subject}: ${figures}${rule}`,
    agreement: { minCosine, maxDifference },
  };
}

/** Three significant digits, down to the rounding of float32: `0.000123 %`. */
function percent(fraction: number): string {
  if (!Number.isFinite(fraction)) return "not finite";
  const value = 100 * fraction;
  const digits = value > 0 ? Math.min(7, Math.max(0, 2 - Math.floor(Math.log10(value)))) : 0;
  return `${value.toFixed(digits)} %`;
}
