import { resolve } from "node:path";
import { type Command, Option } from "commander";
import { imageTowerOf, requireTower, textTowerOf } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { maxImagePixels } from "../../contract/preprocess-parameters.ts";
import { fp32Kinds } from "../../contract/repository-files.ts";
import { preprocess } from "../../inference/preprocess/preprocess.ts";
import {
  type Counterpart,
  checkModel,
  type ModelReport,
} from "../../model-tools/check/check-model.ts";
import { syntheticImages } from "../../model-tools/check/compare-models.ts";
import { openTower, type TowerInputs } from "../../model-tools/check/run-model.ts";
import { sampleTokenIds } from "../../model-tools/check/token-samples.ts";
import { tritonCounterpart } from "../../model-tools/check/triton-counterpart.ts";
import { displayPath, ofFiles } from "../../model-tools/files/user-errors.ts";
import { modelFile } from "../../model-tools/generate/generate.ts";
import { modalityOf, tensorText } from "../../model-tools/graph/model-structure.ts";
import { readOnnx } from "../../model-tools/onnx/reader.ts";
import { readSamples } from "../../target/reference/reference.ts";
import { percentage, repeated } from "../shared/option-values.ts";
import { weightsHint } from "./model-option.ts";
import { megabytes } from "./model-output.ts";
import { modalityOption, modelArgument, namedModel } from "./named-model.ts";

interface CheckArguments {
  readonly modality?: Modality;
  readonly weights?: string;
  readonly against: readonly string[];
  readonly url?: string;
  readonly tritonModel?: string;
  readonly limit: number;
  readonly json?: true;
}

/** Registers `clipstack model check`, which checks whether the servers can use a model file. */
export function registerModelCheck(model: Command): void {
  model
    .command("check")
    .description(
      "check that a file fits a model, describe it, and check that its embeddings are valid and equal those of other files or " +
        "runtimes",
    )
    .argument("[model]", modelArgument)
    .addOption(modalityOption("; default: that of the file of --weights, otherwise of images"))
    .option(
      "--weights <file>",
      "default: the file of the tower in the model repository of this checkout",
    )
    .addOption(weightsHint())
    .option("--against <file>", "ONNX file to compare with; repeatable", repeated(String), [])
    .option("--url <url>", "Triton to compare with: http://host:port")
    .option(
      "--triton-model <name>",
      "name of the model on Triton, default: that of the FP32 modelKind",
    )
    .addOption(
      new Option(
        "--limit <percent>",
        "maximum difference between two values, relative to the largest value",
      )
        .argParser(percentage(0, 100))
        .default(0.001, "0.1%"),
    )
    .option("--json", "print the findings as JSON")
    .addHelpText(
      "after",
      `
Exit codes: 1 if a check failed, 2 if the file cannot be read or the model has no such tower. A text tower is run on token ids;
the file of its tokenizer must lie beside it, unless a package has the vocabulary, as for CLIP.

Examples:
  $ npx clipstack model check
  $ npx clipstack model check dinov2-small --weights mine.onnx
  $ npx clipstack model check siglip2-base-224 --modality text
  $ npx clipstack model check --weights int8.onnx --against model.onnx --limit 5
  $ npx clipstack model check --url http://localhost:8010 --json`,
    )
    .action(check);
}

async function check(name: string | undefined, args: CheckArguments): Promise<void> {
  const spec = namedModel(name);
  const modality = await modalityFor(spec, args);
  requireTower(spec, modality);
  const report = await (modality === "image"
    ? checkTower(spec, "image", await imagesOf(spec), args)
    : checkTower(spec, "text", textsOf(spec), args));
  if (!report.ok) process.exitCode = 1;
}

/** Modality of the file of `--weights`; images if the model has no choice or no file is named. */
async function modalityFor(
  { towers }: ModelSpec,
  { modality, weights }: CheckArguments,
): Promise<Modality> {
  if (modality !== undefined) return modality;
  if (towers.image === undefined) return "text";
  if (towers.text === undefined || weights === undefined) return "image";
  return modalityOf(await ofFiles((async () => readOnnx(resolve(weights)))()));
}

async function checkTower<M extends Modality>(
  spec: ModelSpec,
  modality: M,
  inputs: readonly TowerInputs[M][],
  args: CheckArguments,
): Promise<ModelReport> {
  const { weights, against, url, tritonModel, limit } = args;
  const file = weights === undefined ? modelFile(spec, fp32Kinds[modality]) : resolve(weights);
  const others = [
    ...against.map((path) => fileCounterpart(spec, modality, resolve(path))),
    ...(url === undefined ? [] : [tritonCounterpart(spec, modality, url, tritonModel)]),
  ];
  console.error(`checking ${displayPath(file)} …`);
  const report = await ofFiles(
    checkModel(spec, modality, file, { inputs, against: others, limit }),
  );
  if (args.json) console.log(JSON.stringify({ file: displayPath(file), ...report }, null, 2));
  else console.log(checkText(displayPath(file), report));
  return report;
}

/** Samples and synthetic images: a full batch. */
async function imagesOf(spec: ModelSpec): Promise<readonly Uint8Array[]> {
  const { input } = imageTowerOf(spec);
  const { maximum } = spec.batching;
  const pixels = await Promise.all(
    readSamples(maximum).map(({ bytes }) =>
      preprocess(bytes, input, { maxPixels: maxImagePixels }),
    ),
  );
  const count = Math.max(maximum, minInputs) - pixels.length;
  return [...pixels, ...syntheticImages(Math.max(count, 0), input.size)];
}

/** Token ids of a full batch. */
function textsOf(spec: ModelSpec): readonly TowerInputs["text"][] {
  const count = Math.max(spec.batching.maximum, minInputs);
  return sampleTokenIds(textTowerOf(spec).input, count);
}

/** Enough inputs to find equal embeddings, also for models with a small maximum batch size. */
const minInputs = 32;

function fileCounterpart<M extends Modality>(
  spec: ModelSpec,
  modality: M,
  path: string,
): Counterpart<M> {
  return { name: displayPath(path), open: () => openTower(spec, modality, path), batchSize: 1 };
}

/** Human-readable report. */
export function checkText(file: string, report: ModelReport): string {
  const { info, structure, findings } = report;
  const opsets = Object.entries(structure.opsets).map(
    ([domain, version]) => `${domain} ${version}`,
  );
  const failed = findings.filter(({ ok }) => !ok).length;
  const weights = info.weights === "unknown" ? "weights unknown" : `weights ${info.weights}`;
  return [
    file,
    `  ${megabytes(info.bytes)} MB, sha256 ${info.sha256}`,
    ...structure.externalData.map(
      ({ file: other, bytes }) => `  weights in ${other}, ${megabytes(bytes)} MB`,
    ),
    `  ${info.source === "unknown" ? "not generated by this project" : info.source}, ${weights}`,
    `  IR version ${structure.irVersion}, operators ${opsets.join(", ")}, written by ${structure.producer || "an unknown producer"}`,
    ...structure.inputs.map((tensor) => `  input  ${tensorText(tensor)}`),
    ...structure.outputs.map((tensor) => `  output ${tensorText(tensor)}`),
    ...(structure.tower === undefined ? [] : [`  ${structure.tower}`]),
    "",
    ...findings.map(({ ok, message }) => `${ok ? "ok  " : "FAIL"}  ${message}`),
    "",
    failed === 0
      ? `${findings.length} checks passed`
      : `${findings.length} checks, ${failed} failed`,
  ].join("\n");
}
