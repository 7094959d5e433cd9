import { join, resolve } from "node:path";
import { type Command, Option } from "commander";
import { readSamples } from "../../bench/run/reference.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import {
  openclipVitB32,
  openclipVitB32Trt,
  openclipVitB32U8,
} from "../../contract/model-signature.ts";
import { elementCount } from "../../contract/tensor.ts";
import { UserError } from "../../contract/user-error.ts";
import { imageTensor, pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { preprocess } from "../../inference/preprocess/preprocess.ts";
import { type Counterpart, checkModel, type ModelReport } from "../../model-tools/check-model.ts";
import { syntheticImages } from "../../model-tools/compare-models.ts";
import { repositoryModel } from "../../model-tools/generate.ts";
import { tensorText } from "../../model-tools/model-structure.ts";
import { openModel, type RunnableModel } from "../../model-tools/run-model.ts";
import { percentage, repeated } from "../option-values.ts";
import { displayPath } from "../project.ts";
import { megabytes, ofFiles } from "./model-output.ts";

interface CheckArguments {
  readonly model?: string;
  readonly against: readonly string[];
  readonly url?: string;
  readonly tritonModel: string;
  readonly limit: number;
  readonly json?: true;
}

/** Registers `clipstack model check`, which checks whether the servers can use a model file. */
export function registerModelCheck(model: Command): void {
  model
    .command("check")
    .description(
      "describe a model file, list the config.pbtxt files that it matches, and check that its embeddings are valid and equal " +
        "those of other files or runtimes",
    )
    .option("--model <file>", "default: the standard file of the model repository of this checkout")
    .option("--against <file>", "ONNX file to compare with; repeatable", repeated(String), [])
    .option("--url <url>", "Triton to compare with: http://host:port")
    .option("--triton-model <name>", "name of the model on Triton", openclipVitB32.name)
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
Exit codes: 1 if a check failed, 2 if the file cannot be read or is not an image model.

Examples:
  $ npx clipstack model check
  $ npx clipstack model check --model int8.onnx --against model.onnx --limit 5
  $ npx clipstack model check --url http://localhost:8010 --json`,
    )
    .action(check);
}

async function check(args: CheckArguments): Promise<void> {
  const file = args.model === undefined ? repositoryModel : resolve(args.model);
  const others = args.against.map((path) => resolve(path));
  const against = [
    ...others.map((path) => fileCounterpart(path)),
    ...(args.url === undefined ? [] : [triton(args.url, args.tritonModel)]),
  ];
  console.error(`checking ${displayPath(file)} …`);
  const report = await ofFiles(
    checkModel(file, { images: await images(), against, limit: args.limit }),
  );
  if (args.json) console.log(JSON.stringify({ file: displayPath(file), ...report }, null, 2));
  else console.log(checkText(displayPath(file), report));
  if (!report.ok) process.exitCode = 1;
}

/** Number of compared images: a full batch of samples and synthetic images. */
const imageCount = openclipVitB32.maxBatchSize;

async function images(): Promise<readonly Uint8Array[]> {
  const samples = readSamples(join(import.meta.dirname, "../../model-tools/samples"), imageCount);
  const pixels = await Promise.all(
    samples.map(({ bytes }) => preprocess(bytes, { maxPixels: 40_000_000 })),
  );
  return [...pixels, ...syntheticImages(imageCount - pixels.length)];
}

function fileCounterpart(path: string): Counterpart {
  return { name: displayPath(path), open: () => openModel(path), batchSize: 1 };
}

/** Timeout for eight images on Triton, including a cold start. */
const tritonTimeoutMs = 120_000;

/** Models of the repository whose input this command can create from an image. */
const tensors = [
  { name: openclipVitB32.name, tensorOf: imageTensor },
  { name: openclipVitB32Trt.name, tensorOf: imageTensor },
  { name: openclipVitB32U8.name, tensorOf: pixelTensor },
] as const;

function triton(url: string, model: string): Counterpart {
  const served = tensors.find(({ name }) => name === model);
  if (served === undefined) {
    const names = tensors.map(({ name }) => name).join(", ");
    throw new UserError(`--triton-model must be one of ${names}, got '${model}'`);
  }
  return {
    name: `${model} of ${url}`,
    batchSize: 8,
    open: async (): Promise<RunnableModel> => {
      const transport = openHttpTransport({ url });
      return {
        async embed(pixels, batchSize) {
          const vectors: Float32Array[] = [];
          for (let first = 0; first < pixels.length; first += batchSize) {
            const batch = pixels.slice(first, first + batchSize);
            const [output] = await transport.infer(model, [served.tensorOf(batch)], {
              timeoutMs: tritonTimeoutMs,
            });
            if (output?.dataType !== "FP32" || output.shape[0] !== batch.length) {
              throw new Error(`${model} of ${url}: must return FP32 values for each image`);
            }
            const width = elementCount(output.shape) / batch.length;
            for (let i = 0; i < batch.length; i++) {
              vectors.push(output.data.slice(i * width, (i + 1) * width));
            }
          }
          return vectors;
        },
        close: () => transport.close(),
      };
    },
  };
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
