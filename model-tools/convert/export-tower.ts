import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { execa } from "execa";
import { z } from "zod";
import { imageTowerOf, textTowerOf } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { NumericTensor } from "../../contract/tensor.ts";
import { UserError } from "../../contract/user-error.ts";
import { imageTensor } from "../../inference/preprocess/image-tensor.ts";
import { tokenTensor } from "../../inference/session/token-tensor.ts";
import { sampleTokenIds } from "../check/token-samples.ts";
import type { TowerFile } from "../fetch/pull.ts";
import { type ModelInfo, sha256Of } from "../files/model-info.ts";
import { draftModelFile, publishFile, sizeOf } from "../files/publish-file.ts";
import { displayPath, ofFiles } from "../files/user-errors.ts";
import { type ModelProfile, modelProfiles } from "../generate/architectures.ts";
import { structureOf } from "../graph/model-structure.ts";
import { readOnnx } from "../onnx/reader.ts";
import { readPhotos } from "./optimise.ts";

/** Runs `model-tools/python/export/export.py`. */

const program = fileURLToPath(new URL("../python/export/export.py", import.meta.url));

/** Maximum difference of a value from PyTorch's, relative to the largest value of the embedding. */
export const limit = 0.001;
const batchSizes = [1, 32] as const;
const textCount = 32;

/**
 * Writes the spec and the inputs on which the file is compared to temporary files, and calls `work` with the options that name them.
 *
 * @param images - Folder of images. @default the sample images
 */
async function withExportInputs<Result>(
  spec: ModelSpec,
  modality: Modality,
  images: string | undefined,
  work: (options: readonly string[]) => Promise<Result>,
): Promise<Result> {
  const { data } = await inputsOf(spec, modality, images);
  const folder = await mkdtemp(join(tmpdir(), "clipstack-export-"));
  try {
    const [specFile, inputsFile] = [join(folder, "spec.json"), join(folder, "inputs")];
    await writeFile(specFile, JSON.stringify(spec));
    await writeFile(inputsFile, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return await work(["--modality", modality, "--spec", specFile, "--inputs", inputsFile]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function inputsOf(
  spec: ModelSpec,
  modality: Modality,
  images: string | undefined,
): Promise<NumericTensor> {
  if (modality === "text") {
    const tower = textTowerOf(spec);
    return tokenTensor(tower, sampleTokenIds(tower.input, textCount)) as NumericTensor;
  }
  return imageTensor(await ofFiles(readPhotos(spec, images)), imageTowerOf(spec));
}

export interface ExportOptions {
  /** Architecture in open_clip, or a file with its configuration. */
  readonly architecture: string;
  /** Options of the program that select the weights. */
  readonly weights: readonly string[];
  readonly profile: ModelProfile;
  /** Folder of images on which the file is compared. @default the sample images */
  readonly images: string | undefined;
  readonly python: string;
  readonly onProgress: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface ExportedTower extends TowerFile {
  readonly info: ModelInfo;
  readonly exported: Exported;
}

/**
 * Exports a tower to an ONNX file. An existing file is kept until the new one agrees with PyTorch.
 *
 * @throws {Error} if the file differs from PyTorch or does not fit the model
 */
export async function exportTower(
  spec: ModelSpec,
  tower: TowerFile,
  { architecture, weights, profile, images, python, onProgress, signal }: ExportOptions,
): Promise<ExportedTower> {
  const { modality, file } = tower;
  const draft = await draftModelFile(file).catch((error: NodeJS.ErrnoException) => {
    throw new UserError(`--output ${displayPath(file)} cannot be written: ${error.code}`, {
      cause: error,
    });
  });
  try {
    const exported = await withExportInputs(spec, modality, images, (inputs) => {
      const options = ["--profile", profile, ...inputs, "--architecture", architecture];
      const args = [...weights, ...options, "--output", draft.path];
      return runExport(python, args, onProgress, signal);
    });
    const graph = await ofFiles((async () => readOnnx(draft.path))());
    const { misfits } = structureOf(spec, modality, graph);
    if (misfits.length > 0) {
      throw new Error(`the exported file does not fit ${spec.name}: ${misfits.join("; ")}`);
    }
    const info: ModelInfo = {
      schema: 1,
      sha256: await sha256Of(draft.path),
      bytes: (await sizeOf(draft.path)) ?? 0,
      source: "exported",
      weights: exported.weights,
      model: spec.name,
      seed: exported.seed ?? undefined,
      architecture: exported.profile === "tiny" ? "tiny" : basename(architecture, ".json"),
      opset: exported.opset,
    };
    await publishFile(draft.path, file, info);
    return { ...tower, info, exported };
  } finally {
    await draft.discard();
  }
}

const exportedSchema = z.object({
  schema: z.literal(1),
  profile: z.enum(modelProfiles),
  weights: z.string().min(1),
  seed: z.int().nullable(),
  exporter: z.string(),
  opset: z.int().min(1),
  /** Number of compared images or texts. */
  inputs: z.int().min(1),
  limit: z.literal(limit),
  checks: z.array(
    z.object({
      batch: z.int(),
      /** Largest difference of a value, relative to the largest value of its embedding. */
      maxDifference: z.number().min(0),
      minCosine: z.number(),
    }),
  ),
  versions: z.object({
    python: z.string(),
    torch: z.string(),
    open_clip: z.string(),
    onnx: z.string(),
    onnxruntime: z.string(),
  }),
});
export type Exported = z.infer<typeof exportedSchema>;

/** @throws {Error} if the file differs from PyTorch */
async function runExport(
  python: string,
  args: readonly string[],
  onProgress: (line: string) => void,
  signal: AbortSignal,
): Promise<Exported> {
  const child = execa(python, [program, ...args], {
    env: { PYTHONNOUSERSITE: "1", PYTHONUNBUFFERED: "1", PYTHONUTF8: "1" },
    stdin: "ignore",
    reject: false,
    cancelSignal: signal,
    forceKillAfterDelay: 1_000,
  });
  let failure = "";
  let last = "";
  for await (const line of createInterface({ input: child.stderr })) {
    if (line.trim() === "") continue;
    last = line.trim();
    if (line.startsWith("export: ")) failure = line.slice("export: ".length);
    else if (/^(loading|fetching|exporting|comparing) /.test(line)) onProgress(`${line} …`);
  }
  const { code, exitCode, stdout, signal: ended } = await child;
  signal.throwIfAborted();
  if (code === "ENOENT" || code === "EACCES") {
    throw new UserError(`--python must be an executable, got '${python}' (${code})`);
  }
  if (exitCode === 1 && failure !== "") throw new Error(failure);
  if (exitCode !== 0) {
    const cause = ended === undefined ? `exited with code ${exitCode}` : `terminated by ${ended}`;
    throw new UserError(`the export failed: ${failure || last || cause}`);
  }
  return parseExported(stdout);
}

/** Parses the output of `export.py`; unexpected output counts as a failed comparison. */
function parseExported(stdout: string): Exported {
  let value: unknown;
  try {
    value = JSON.parse(stdout.trim().split("\n").at(-1) ?? "");
  } catch (error) {
    throw new Error("the export printed no result", { cause: error });
  }
  const parsed = exportedSchema.safeParse(value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new Error(
      `the export printed an invalid result: ${issue?.path.join(".")} ${issue?.message}`,
    );
  }
  for (const batch of batchSizes) {
    const check = parsed.data.checks.find((entry) => entry.batch === batch);
    if (check === undefined) throw new Error(`the export was not checked at batch ${batch}`);
    if (check.maxDifference > limit) {
      throw new Error(
        `the file differs from PyTorch by ${percent(check.maxDifference)} at batch ${batch}, more than ${percent(limit)}: the file was discarded`,
      );
    }
  }
  return parsed.data;
}

/** Formats a small fraction with two significant digits. */
export function percent(fraction: number): string {
  return `${Number((100 * fraction).toPrecision(2))} %`;
}
