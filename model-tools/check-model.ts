import { embeddingDims, openclipVitB32 } from "../contract/model-signature.ts";
import { type Agreement, compareModels } from "./compare-models.ts";
import { type ModelInfo, modelInfo } from "./model-info.ts";
import { type ModelStructure, structureOf } from "./model-structure.ts";
import { readOnnx } from "./onnx-reader.ts";
import { openModel, type RunnableModel } from "./run-model.ts";
import { unitLength } from "./standard-model.ts";

export const modelChecks = [
  /** It fits a `config.pbtxt` of the model repository. */
  "fit",
  /** Its embeddings are as wide as they must be, and of numbers. */
  "finite",
  /** Other images have other embeddings. */
  "unequal",
  /** An image has the same embedding alone and in a full batch. */
  "batch",
  /** And wherever it is in the batch. */
  "rows",
  /** Another file, or another runtime, gives the same embeddings. */
  "parity",
] as const;

/** One line per check. */
export interface ModelFinding {
  readonly check: (typeof modelChecks)[number];
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

/** Model with which another is compared. */
export interface Counterpart {
  /** For people: `the server's form`, or a path. */
  readonly name: string;
  readonly open: () => Promise<RunnableModel>;
  /** Images of one run. */
  readonly batchSize: number;
}

export interface CheckModelOptions {
  /** Full batches of it are run too: `[224, 224, 3]` 8-bit RGB each, at least 32, no two of them the same. */
  readonly images: readonly Uint8Array[];
  /** @default - none */
  readonly against?: readonly Counterpart[];
  /** Largest difference of two values, relative to the largest value; a cosine may be as much below 1. */
  readonly limit: number;
}

/** Images of a full batch. */
const fullBatch = openclipVitB32.maxBatchSize;

/** Two embeddings that are nearer than this are one: more than float32 loses, less than any two pictures. */
const sameDifference = 1e-6;

/**
 * Look at a model file, run it, and compare it with others.
 *
 * @throws {Error} one line, when a file is missing, broken, or not an image model: there is nothing to check then.
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
    // one at a time: each takes the memory of a model
    for (const other of against) findings.push(await parityOf(vectors, images, other, limit));
  }
  return { info, structure, findings, limit, ok: findings.every(({ ok }) => ok) };
}

function fitOf({ fits, misfits }: ModelStructure): ModelFinding {
  if (fits.length > 0) {
    const shown = fits.map((name) => `model_repository/${name}/config.pbtxt`).join(", ");
    return { check: "fit", ok: true, message: `fits ${shown}` };
  }
  return { check: "fit", ok: false, message: `fits no config.pbtxt: ${misfits.join("; ")}` };
}

function finiteOf(vectors: readonly Float32Array[]): ModelFinding {
  const widths = [...new Set(vectors.map(({ length }) => length))];
  if (widths.join() !== String(embeddingDims)) {
    const message = `an embedding must have ${embeddingDims} values, has ${widths.join(" or ")}`;
    return { check: "finite", ok: false, message };
  }
  const bad = vectors.filter((vector) => !vector.every(Number.isFinite)).length;
  const zero = vectors.filter((vector) => vector.every((value) => value === 0)).length;
  if (bad + zero > 0) {
    const what = bad > 0 ? "values that are no finite numbers" : "nothing but zeros";
    const message = `${bad || zero} of ${vectors.length} embeddings have ${what}`;
    return { check: "finite", ok: false, message };
  }
  const message = `${vectors.length} images give ${embeddingDims} finite values each`;
  return { check: "finite", ok: true, message };
}

function unequalOf(vectors: readonly Float32Array[]): ModelFinding {
  const units = vectors.map(unitLength);
  let [equal, nearest] = [0, -1];
  for (const [index, one] of units.entries()) {
    for (const other of units.slice(0, index)) {
      const { minCosine, maxDifference } = compareModels([one], [other]);
      if (maxDifference <= sameDifference) equal++;
      nearest = Math.max(nearest, minCosine);
    }
  }
  if (equal > 0) {
    const message = `${equal} pairs of unlike images have the same embedding`;
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
    compared("rows", limit, "each row, whatever its place", compareModels(together, reversed)),
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
    const message = `${name}: must give ${width} values, gives ${got}`;
    return { check: "parity", ok: false, message };
  }
  // one that divides by the length at the end says the same
  const scaled = isUnit(vectors) === isUnit(others) ? "" : ", after division by their lengths";
  const agreement =
    scaled === ""
      ? compareModels(vectors, others)
      : compareModels(vectors.map(unitLength), others.map(unitLength));
  return compared("parity", limit, `${name}${scaled}`, agreement);
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
  what: string,
  { minCosine, maxDifference }: Agreement,
): ModelFinding {
  const ok = maxDifference <= limit && minCosine >= 1 - limit;
  const figures = `largest difference ${percent(maxDifference)}, cosine at least ${minCosine.toFixed(7)}`;
  const rule = ok ? "" : `; the limit is ${Number((100 * limit).toPrecision(6))} %`;
  return {
    check,
    ok,
    message: `${what}: ${figures}${rule}`,
    agreement: { minCosine, maxDifference },
  };
}

/** `0.000123 %`: three digits that mean something, down to what float32 loses. */
function percent(fraction: number): string {
  if (!Number.isFinite(fraction)) return "beyond measure";
  const value = 100 * fraction;
  const digits = value > 0 ? Math.min(7, Math.max(0, 2 - Math.floor(Math.log10(value)))) : 0;
  return `${value.toFixed(digits)} %`;
}
