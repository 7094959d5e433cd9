import { dirname, join } from "node:path";
import { textTowerOf, tokenizerFile } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { messageOf } from "../../contract/user-error.ts";
import { openTowerSession, type TowerSession } from "../../inference/session/tower-session.ts";
import { openTokenizer } from "../../inference/text/tokenizer.ts";
import type { InferenceError } from "../../inference/threads/inference-error.ts";
import { type ModelInfo, modelInfo } from "../files/model-info.ts";
import { type ModelStructure, structureOf, takesInputs } from "../graph/model-structure.ts";
import { readOnnx } from "../onnx/reader.ts";
import { type Agreement, compareModels, unitLength } from "./compare-models.ts";
import { openTower, type RunnableModel, runnable, type TowerInputs } from "./run-model.ts";

type ModelCheck =
  /** The tensors are those of the spec. */
  | "fit"
  /** The file of the tokenizer, if the model has one, is that of the spec. */
  | "tokenizer"
  /** Embeddings have the expected width and finite values. */
  | "finite"
  /** Different images or texts have different embeddings. */
  | "unequal"
  /** An image or a text has the same embedding alone and in a full batch. */
  | "batch"
  /** An image or a text has the same embedding at every position of a batch. */
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
export interface Counterpart<M extends Modality = "image"> {
  /** Path or description, for messages. */
  readonly name: string;
  readonly open: () => Promise<RunnableModel<M>>;
  readonly batchSize: number;
}

export interface CheckModelOptions<M extends Modality = "image"> {
  /** Different images or texts, at least the maximum batch size, because full batches are run too. */
  readonly inputs: readonly TowerInputs[M][];
  /**
   * Models whose embeddings must equal those of the checked file, within `limit`.
   *
   * @default - none
   */
  readonly against?: readonly Counterpart<M>[];
  /** Maximum difference of two values, relative to the largest value; a cosine may be below 1 by the same amount. */
  readonly limit: number;
}

/** Largest difference of equal embeddings: above the rounding of float32, below the difference of any two photos or texts. */
const sameDifference = 1e-6;

/**
 * Compares the file of a tower with its spec, runs it, and compares it with others.
 *
 * @throws {Error} with one line if a file is missing or damaged, or the model has no such tower
 */
export async function checkModel<M extends Modality>(
  spec: ModelSpec,
  modality: M,
  path: string,
  options: CheckModelOptions<M>,
): Promise<ModelReport> {
  const { inputs, against = [], limit } = options;
  const file = readOnnx(path);
  const structure = structureOf(spec, modality, file);
  const info = await modelInfo(path);
  const opened = await openTowerSession({ spec, modality, modelPath: path }).catch(
    (error: InferenceError) => error,
  );
  const findings: ModelFinding[] = [fitOf(spec, structure, opened)];
  if (modality === "text") findings.push(...(await tokenizerOf(spec, path)));
  const isOpen = "session" in opened;
  if (!isOpen && !takesInputs(spec, modality, file))
    return { info, structure, findings, limit, ok: false };

  const model = isOpen
    ? runnable(opened.spec, modality, path, opened.session)
    : await openTower(spec, modality, path);
  let vectors: readonly Float32Array[];
  try {
    vectors = await model.embed(inputs, 1);
    const usable = finiteOf(vectors, modality, spec.embedding.width);
    findings.push(usable);
    if (usable.ok) {
      findings.push(unequalOf(vectors, modality));
      if (structure.dynamicBatch)
        findings.push(...(await batchesOf(model, options, vectors, spec.batching.maximum)));
    }
  } finally {
    await model.close();
  }
  if (findings.every(({ check, ok }) => check !== "finite" || ok)) {
    // sequentially, because each model is loaded into memory
    for (const other of against) findings.push(await parityOf(vectors, inputs, other, limit));
  }
  return { info, structure, findings, limit, ok: findings.every(({ ok }) => ok) };
}

function fitOf(
  { name }: ModelSpec,
  { fits, misfits }: ModelStructure,
  opened: TowerSession | InferenceError,
): ModelFinding {
  if (!("session" in opened)) {
    const problem = misfits.join("; ") || opened.problem;
    return { check: "fit", ok: false, message: `does not fit ${name}: ${problem}` };
  }
  const { inputs, outputs } = opened.session;
  const names = [...inputs, ...outputs].map((tensor) => `'${tensor.name}'`).join(" and ");
  const where =
    fits.length > 0
      ? `in the model repository: ${fits.join(", ")}`
      : `with the tensor names ${names}: Triton's configuration requires those of the spec`;
  return { check: "fit", ok: true, message: `fits ${name}, ${where}` };
}

/** Checks the file of a tokenizer that lies beside the text tower; none for a vocabulary of a package. */
async function tokenizerOf(spec: ModelSpec, path: string): Promise<readonly ModelFinding[]> {
  const { input } = textTowerOf(spec);
  const file = tokenizerFile(input);
  if (file === undefined) return [];
  try {
    await openTokenizer(input, join(dirname(path), file));
    const message = `${file} beside the file is the tokenizer of ${spec.name}`;
    return [{ check: "tokenizer", ok: true, message }];
  } catch (error) {
    return [{ check: "tokenizer", ok: false, message: messageOf(error) }];
  }
}

function finiteOf(
  vectors: readonly Float32Array[],
  modality: Modality,
  width: number,
): ModelFinding {
  const widths = [...new Set(vectors.map(({ length }) => length))];
  if (widths.join() !== String(width)) {
    const message = `an embedding must have ${width} values, got ${widths.join(" or ")}`;
    return { check: "finite", ok: false, message };
  }
  const bad = vectors.filter((vector) => !vector.every(Number.isFinite)).length;
  const zero = vectors.filter((vector) => vector.every((value) => value === 0)).length;
  if (bad + zero > 0) {
    const fault = bad > 0 ? "values that are not finite" : "only zeros";
    const message = `${bad || zero} of ${vectors.length} embeddings have ${fault}`;
    return { check: "finite", ok: false, message };
  }
  const message = `${vectors.length} ${modality}s give ${width} finite values each`;
  return { check: "finite", ok: true, message };
}

function unequalOf(vectors: readonly Float32Array[], modality: Modality): ModelFinding {
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
    const message = `${equal} pairs of different ${modality}s have the same embedding`;
    return { check: "unequal", ok: false, message };
  }
  const message = `no two embeddings are equal; the nearest have a cosine of ${nearest.toFixed(4)}`;
  return { check: "unequal", ok: true, message };
}

async function batchesOf<M extends Modality>(
  model: RunnableModel<M>,
  { inputs, limit }: CheckModelOptions<M>,
  vectors: readonly Float32Array[],
  fullBatch: number,
): Promise<readonly ModelFinding[]> {
  const batch = inputs.slice(0, fullBatch);
  const alone = vectors.slice(0, fullBatch);
  const together = await model.embed(batch, fullBatch);
  const reversed = (await model.embed([...batch].reverse(), fullBatch)).toReversed();
  return [
    compared("batch", limit, `batch 1 and batch ${fullBatch}`, compareModels(alone, together)),
    compared("rows", limit, "rows in reversed order", compareModels(together, reversed)),
  ];
}

async function parityOf<M extends Modality>(
  vectors: readonly Float32Array[],
  inputs: readonly TowerInputs[M][],
  { name, open, batchSize }: Counterpart<M>,
  limit: number,
): Promise<ModelFinding> {
  const model = await open();
  let others: readonly Float32Array[];
  try {
    others = await model.embed(inputs, batchSize);
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
