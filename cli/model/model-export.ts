import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type Command, Option } from "commander";
import { execa } from "execa";
import { z } from "zod";
import { type Interrupt, onInterrupt } from "../../artefact/interrupt.ts";
import { UserError } from "../../contract/user-error.ts";
import { defaultSeed, repositoryModel } from "../../model-tools/generate.ts";
import { type ModelInfo, sha256Of } from "../../model-tools/model-info.ts";
import { readOnnx } from "../../model-tools/onnx-reader.ts";
import { draftModelFile, publishFile, sizeOf } from "../../model-tools/publish-file.ts";
import { isStandard } from "../../model-tools/standard-model.ts";
import { profiles } from "../../model-tools/vision-transformer.ts";
import {
  megabytes,
  ofFiles,
  requireNoFolder,
  requireReplaceable,
  seedOf,
  shownPath,
} from "./model-output.ts";
import {
  ensurePython,
  type PytorchSource,
  pytorchPackages,
  pytorchSources,
} from "./python-environment.ts";

const program = fileURLToPath(
  new URL("../../model-tools/python/export/export.py", import.meta.url),
);
const sampleImages = fileURLToPath(new URL("../../model-tools/samples/", import.meta.url));
const defaultTag = "laion2b_s34b_b79k";

/** Maximum difference of a value from PyTorch's, relative to the largest value of the embedding. */
const limit = 0.001;
const batchSizes = [1, 32] as const;

interface ExportArguments {
  readonly pretrained?: string;
  readonly weights?: string;
  readonly randomWeights?: true;
  readonly seed: number;
  readonly profile: keyof typeof profiles;
  readonly images?: string;
  readonly python?: string;
  readonly torch: PytorchSource;
  readonly output?: string;
  readonly force?: true;
  readonly json?: true;
}

/** `clipstack model export`: PyTorch's own weights as an ONNX file. */
export function registerModelExport(model: Command): void {
  model
    .command("export")
    .description(
      "export the image tower of OpenCLIP ViT-B/32 from PyTorch to ONNX, and check that both agree within 0.1 % on real " +
        "images, at batch 1 and 32",
    )
    .option(
      "--pretrained <tag>",
      `published weights, as open_clip names them; default: ${defaultTag}`,
    )
    .option("--weights <file>", "your own checkpoint of open_clip: .safetensors, .pt, .bin")
    .option("--random-weights", "of no use for finding photos; no internet")
    .option("--seed <integer>", "of --random-weights", seedOf, defaultSeed)
    .addOption(
      new Option("--profile <name>", "tiny is for tests, with --random-weights")
        .choices(Object.keys(profiles))
        .default("vit-b-32"),
    )
    .option(
      "--images <folder>",
      "what both are compared on, default: the sample images of this checkout",
    )
    .option("--python <program>", "one that has the packages; without it they are installed, once")
    .addOption(
      new Option(
        "--torch <source>",
        "where to install PyTorch from: pypi, 3 GB on Linux, or cpu, 0.3 GB",
      )
        .choices(pytorchSources)
        .default("pypi"),
    )
    .option("--output <file>", "default: the model repository of this checkout")
    .option("--force", "replace a file that something else than this project wrote")
    .option("--json", "print what was exported as JSON")
    .addHelpText(
      "after",
      `
PyTorch and open_clip are installed as model-tools/python/export locks them, into $XDG_CACHE_HOME/clipstack or
~/.cache/clipstack. pip takes a mirror or a proxy from PIP_INDEX_URL and HTTPS_PROXY, the hub of the weights from
HF_ENDPOINT. \`--torch cpu\` is of download.pytorch.org: pinned by version, not by checksum.

An existing file is kept until the new one agrees with PyTorch. Exit code 1: it does not agree.

Examples:
  $ npx clipstack model export
  $ npx clipstack model export --torch cpu
  $ npx clipstack model export --weights open_clip_model.safetensors --output weights/mine.onnx
  $ npx clipstack model export --random-weights --seed 7 --python .venv/bin/python --json`,
    )
    .action(async (args: ExportArguments) => {
      const interrupt = onInterrupt();
      try {
        await exportModel(args, interrupt);
      } finally {
        interrupt.remove();
      }
    });
}

async function exportModel(args: ExportArguments, { signal }: Interrupt): Promise<void> {
  checkArguments(args);
  const file = args.output === undefined ? repositoryModel : resolve(args.output);
  await requireNoFolder(file);
  if (!args.force) await requireReplaceable(file);
  const onProgress = (line: string) => console.error(line);
  const packages = pytorchPackages(args.torch);
  const python = args.python ?? (await ensurePython(packages, { onProgress, signal }));

  const draft = await draftModelFile(file).catch((error: NodeJS.ErrnoException) => {
    throw new UserError(`--output ${shownPath(file)} cannot be written: ${error.code}`, {
      cause: error,
    });
  });
  let exported: Exported;
  let info: ModelInfo;
  try {
    exported = await runExport(python, argumentsOf(args, draft.path), onProgress, signal);
    const graph = await ofFiles((async () => readOnnx(draft.path))());
    if (!isStandard(graph)) throw new Error("what was exported is not the image tower of ViT-B/32");
    info = {
      schema: 1,
      sha256: await sha256Of(draft.path),
      bytes: (await sizeOf(draft.path)) ?? 0,
      source: "exported",
      weights: exported.weights,
      seed: exported.seed ?? undefined,
      architecture: exported.profile,
      opset: exported.opset,
    };
    await publishFile(draft.path, file, info);
  } finally {
    await draft.discard();
  }
  report(args, file, info, exported);
}

/** @throws {UserError} */
function checkArguments({
  pretrained,
  weights,
  randomWeights,
  profile,
  output,
}: ExportArguments): void {
  const given = [
    pretrained !== undefined && "--pretrained",
    weights !== undefined && "--weights",
    randomWeights && "--random-weights",
  ].filter((name) => typeof name === "string");
  if (given.length > 1) throw new UserError(`${given.join(" and ")} exclude each other`);
  if (profile !== "tiny") return;
  if (!randomWeights) throw new UserError("--profile tiny must be given with --random-weights");
  if (output === undefined) {
    throw new UserError(
      "--profile tiny requires --output: the model repository is for the full-size model",
    );
  }
}

function argumentsOf(args: ExportArguments, output: string): readonly string[] {
  const images = args.images === undefined ? sampleImages : resolve(args.images);
  const weights = args.randomWeights
    ? ["--random-weights", "--seed", String(args.seed)]
    : args.weights !== undefined
      ? ["--weights", resolve(args.weights)]
      : ["--pretrained", args.pretrained ?? defaultTag];
  return [...weights, "--profile", args.profile, "--images", images, "--output", output];
}

/** Output of `export.py`. */
const exportedSchema = z.object({
  schema: z.literal(1),
  profile: z.enum(Object.keys(profiles) as [keyof typeof profiles]),
  weights: z.string().min(1),
  seed: z.int().nullable(),
  exporter: z.string(),
  opset: z.int().min(1),
  /** Number of compared images. */
  images: z.int().min(1),
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
type Exported = z.infer<typeof exportedSchema>;

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
    throw new UserError(`--python must be a program, got '${python}' (${code})`);
  }
  if (exitCode === 1 && failure !== "") throw new Error(failure);
  if (exitCode !== 0) {
    const what =
      ended === undefined ? `it ended with code ${exitCode}` : `it was ended by ${ended}`;
    throw new UserError(`the export failed: ${failure || last || what}`);
  }
  return exportedOf(stdout);
}

/** Parses the output of `export.py`; unexpected output counts as a failed comparison. */
export function exportedOf(stdout: string): Exported {
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
      `the export printed another result: ${issue?.path.join(".")} ${issue?.message}`,
    );
  }
  for (const batch of batchSizes) {
    const check = parsed.data.checks.find((found) => found.batch === batch);
    if (check === undefined) throw new Error(`the export was not checked at batch ${batch}`);
    if (check.maxDifference > limit) {
      throw new Error(
        `the file differs from PyTorch by ${percent(check.maxDifference)} at batch ${batch}, more than ${percent(limit)}: it was not kept`,
      );
    }
  }
  return parsed.data;
}

function report(args: ExportArguments, file: string, info: ModelInfo, exported: Exported): void {
  const { images, checks, versions } = exported;
  if (args.json) {
    const value = {
      file: shownPath(file),
      ...info,
      agreement: { images, limit, checks },
      versions,
    };
    console.log(JSON.stringify(value, null, 2));
    return;
  }
  console.log(`${shownPath(file)} written: ${megabytes(info.bytes)} MB, sha256 ${info.sha256}`);
  console.log(
    info.weights === "random"
      ? `Random weights, seed ${info.seed}: for performance and integration tests, not for image search.`
      : `Weights ${info.weights}.`,
  );
  const shown = checks.map(
    ({ batch, maxDifference }) => `${percent(maxDifference)} at batch ${batch}`,
  );
  console.log(
    `Differs from PyTorch ${versions.torch} by at most ${shown.join(" and ")}, on ${images} images; the limit is ${percent(limit)}.`,
  );
}

/** Formats a small fraction with two significant digits. */
function percent(part: number): string {
  return `${Number((100 * part).toPrecision(2))} %`;
}
