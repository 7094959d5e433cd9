import { dirname, join, relative, resolve } from "node:path";
import { type Command, Option } from "commander";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import type { VerifyRecord } from "../../bench/record/record.ts";
import type { ImageInput, Modality, ModelSpec, ModelTower } from "../../contract/model-spec.ts";
import { maxImagePixels } from "../../contract/preprocess-parameters.ts";
import { fp32Kinds } from "../../contract/repository-files.ts";
import { UserError } from "../../contract/user-error.ts";
import { normalised } from "../../inference/preprocess/image-tensor.ts";
import { preprocess } from "../../inference/preprocess/preprocess.ts";
import { modelInfo } from "../../model-tools/files/model-info.ts";
import { modelFile } from "../../model-tools/generate/generate.ts";
import { renderText } from "../../report/render/render-text.ts";
import {
  recordText,
  reportName,
  type SavedReports,
  saveReports,
} from "../../report/save-reports.ts";
import type { AddressesSource } from "../../target/open/addresses.ts";
import type { ReferenceModel } from "../../target/reference/reference.ts";
import type { VerifyEvent } from "../../verify/check-run.ts";
import { startProgress } from "../../verify/progress.ts";
import { verify } from "../../verify/verify.ts";
import { verifyDeployed } from "../../verify/verify-deployed.ts";
import { verifyReport } from "../../verify/verify-report.ts";
import { deployedEnvironments } from "../cluster/deployed-environments.ts";
import { environmentAtAddresses } from "../cluster/environment-at-addresses.ts";
import { tokenizerProblem, towerFile, weightsHint } from "../model/model-option.ts";
import { pytorchFor } from "../model/pytorch-baseline.ts";
import {
  environmentFiles,
  filesWithHelm,
  outputFolder,
  synthesizeUnlessEdited,
} from "../shared/artefact.ts";
import { endpointAddress } from "../shared/endpoint-address.ts";
import { numberUpTo, portOffset, repeated } from "../shared/option-values.ts";
import { project } from "../shared/project.ts";
import { writeOutput } from "../shared/write-output.ts";

const verifyTargets = ["simulation", "deployed"] as const;

interface VerifyArguments extends RunArguments {
  /** Local simulation, or the deployed containers or pods. */
  readonly target: (typeof verifyTargets)[number];
  /** Whether to synthesize first. Files edited by hand are not overwritten. */
  readonly synth: boolean;
  /** Whether an environment without the files of its models is skipped. @default - it is an error */
  readonly skipUnavailable?: boolean;
  /** Environments of a run without names. @default - all */
  readonly unnamed?: readonly string[];
  /** Environments that run the tiny model, whatever `weights` is. @default - none */
  readonly tiny?: readonly string[];
  /** Addresses of the services of one environment that Terraform did not deploy. @default - none */
  readonly url?: AddressesSource["endpoints"];
}

/**
 * Synthesizes, starts and checks environments, and saves the record and its reports.
 *
 * @param environments - Names; empty: all environments.
 * @throws {UserError} before anything has started, if settings or options are invalid or a port is in use.
 * @throws {Interrupted} on SIGINT and SIGTERM.
 */
async function verifyEnvironments(
  environments: readonly string[],
  args: VerifyArguments,
  onEvent: (event: VerifyEvent) => void,
  onNotice: (line: string) => void,
): Promise<{ readonly record: VerifyRecord; readonly saved: SavedReports }> {
  const outdir = outputFolder();
  const { portOffset, tiny = [], url } = args;
  if (url !== undefined && (environments.length !== 1 || args.target === "deployed")) {
    throw new UserError("--url requires the name of one environment, and no --target deployed");
  }
  const weightsOf = (environment: string) => (tiny.includes(environment) ? "tiny" : args.weights);
  const interrupt = onInterrupt();
  const { signal } = interrupt;
  try {
    if (args.synth && args.target === "simulation") {
      await synthesizeUnlessEdited(environments, outdir, {
        onNotice,
        onSynthesize: () => onEvent({ kind: "phase", text: "synthesize" }),
        strict: true,
      });
    }
    const chosen = environments.length > 0 ? environments : (args.unnamed ?? []);
    const files = filesWithHelm(environments, environmentFiles(chosen, outdir), onNotice);
    const common = {
      project,
      chooseModel: (
        spec: ModelSpec,
        modality: Modality,
        own: string | undefined,
        environment: string,
      ) => {
        const weights = weightsOf(environment);
        requireOneTower(spec, weights);
        return chooseModel({ spec, modality }, weights, onEvent, own);
      },
      samples: join(project, "model-tools/samples"),
      preprocess: async (image: Uint8Array, input: ImageInput) =>
        normalised(await preprocess(image, input, { maxPixels: maxImagePixels }), input),
      portOffset,
      secondsPerEndpoint: args.seconds,
      signal,
      onEvent,
    };
    const record =
      url !== undefined || args.target === "deployed"
        ? await verifyDeployed({
            ...common,
            environments:
              url === undefined
                ? await deployedEnvironments(environments, files, { portOffset, signal, onNotice })
                : files.map((file) => environmentAtAddresses(file, url)),
          })
        : await verify({
            ...common,
            environments: files,
            serverCommand: simulationServer,
            ...(await pytorchFor(files, { onProgress: onNotice, signal })),
            modelRepository: join(project, "model_repository"),
            replaceModels: (environment) => weightsOf(environment) !== "generated",
            skipUnavailable: args.skipUnavailable ?? false,
          });
    const folder = resolve(args.report ?? join(project, "bench/reports"));
    const name = reportName(record.startedAt, record.environments.map((it) => it.name).join("+"));
    return { record, saved: saveReports(folder, name, recordText(record), verifyReport(record)) };
  } catch (error) {
    if (signal.aborted) throw new Interrupted("interrupted", { cause: error });
    throw error;
  } finally {
    interrupt.remove();
  }
}

/** Command that starts the server: program, arguments, server file last. */
export const simulationServer: readonly string[] = [
  process.execPath,
  "--import",
  import.meta.resolve("tsx"),
  join(project, "inference-image/main.ts"),
];

/** @throws {UserError} if `--weights` is a file, which has one tower, and the model has two */
function requireOneTower({ name, towers }: ModelSpec, weights: string): void {
  if (weights === "tiny" || weights === "generated") return;
  if (towers.image === undefined || towers.text === undefined) return;
  throw new UserError(
    `--weights must be tiny or generated, because ${name} embeds images and texts, got '${weights}'`,
  );
}

type OnPhase = (event: VerifyEvent & { readonly kind: "phase" }) => void;

/**
 * Returns the ONNX file that `--weights` selects for a tower, generated if missing, and its description for the record.
 *
 * @param own - Model file of the environment, used for `generated`; absent if it is not on this machine.
 * @throws {UserError} if the file does not exist, or that of a tokenizer
 */
export async function chooseModel(
  { spec, modality }: ModelTower,
  weights: string,
  onEvent: OnPhase,
  own?: string,
): Promise<ReferenceModel> {
  const isOwn =
    weights === "generated" && own !== undefined && own !== modelFile(spec, fp32Kinds[modality]);
  const file = isOwn ? own : await writtenFile({ spec, modality }, weights, onEvent);
  const problem = modality === "text" && (await tokenizerProblem(spec, dirname(file)));
  if (problem) throw new UserError(`${spec.name} cannot embed texts: ${problem}`);
  const { sha256, source, architecture, seed, ...info } = await modelInfo(file);
  const name = !isOwn && (weights === "tiny" || weights === "generated") ? weights : file;
  return {
    spec,
    modality,
    file,
    subject: {
      name,
      spec: spec.name,
      modality,
      sha256,
      source,
      weights: info.weights,
      architecture,
      seed,
      precision: info.precision,
      derivedFromSha256: info.derivedFrom,
      toolVersions: info.versions,
    },
  };
}

function writtenFile(tower: ModelTower, weights: string, onEvent: OnPhase): Promise<string> {
  const { spec } = tower;
  return towerFile(tower, weights, (percent) =>
    onEvent({ kind: "phase", text: `generate ${spec.name}, ${percent} %` }),
  );
}

/** Options of `verify` and `start`. */
export interface RunArguments {
  readonly portOffset: number;
  readonly weights: string;
  readonly json?: true;
  readonly output?: string;
  readonly report?: string;
  readonly seconds: number;
}

/** Adds the options of {@link RunArguments}. */
export function addRunOptions(command: Command): Command {
  return command
    .option("--port-offset <number>", "added to every local port", portOffset, 0)
    .option(
      "--weights <weights>",
      "generated (the environment's own file, or that of model_repository), tiny, or an ONNX file",
      "generated",
    )
    .addOption(weightsHint())
    .option(
      "--seconds <number>",
      "length of the load on each endpoint, in seconds",
      numberUpTo(3_600),
      3,
    )
    .option("--report <folder>", "folder for the record and the reports (default: bench/reports)")
    .option("--json", "print only the record, as JSON")
    .option("--output <file>", "also write the record to a file");
}

/** Verifies environments, prints progress and result, and sets the exit code. */
export async function runVerify(
  environments: readonly string[],
  args: VerifyArguments,
): Promise<void> {
  const progress = startProgress(process.stderr);
  try {
    const { onEvent, print } = progress;
    const { record, saved } = await verifyEnvironments(environments, args, onEvent, print);
    progress.end();
    if (args.output !== undefined) writeOutput(args.output, recordText(record));
    if (args.json) process.stdout.write(recordText(record));
    else console.log(`\n${renderText(verifyReport(record))}report: ${relative("", saved.html)}`);
    process.exitCode = record.passed ? 0 : 1;
  } catch (error) {
    progress.end();
    if (!(error instanceof Interrupted)) throw error;
    console.error("clipstack: interrupted; all processes are stopped");
    process.exitCode = error.exitCode;
  }
}

/** Registers `clipstack verify`. */
export function registerVerify(program: Command): void {
  addRunOptions(
    program
      .command("verify")
      .argument("[environment...]", "names of environments, such as single-gpu (default: all)")
      .addOption(
        new Option(
          "--target <target>",
          "simulation: local processes; deployed: the deployed containers or pods",
        )
          .choices(verifyTargets)
          .default("simulation"),
      )
      .option(
        "--url <endpoint=address>",
        "check one environment that Terraform did not deploy, at this address: embed-http=http://host:port, onnx-grpc=host:port; repeatable",
        repeated(endpointAddress),
      )
      .option(
        "--no-synth",
        "use the existing output in cdktf.out, as --target deployed always does",
      ),
  )
    .addHelpText(
      "after",
      `
A deployed environment is reached through its own ports, through an ssh tunnel if they are on the loopback interface of its
host, or through the API server of its cluster. Its containers or Kubernetes objects are compared with cdk.tf.json. Nothing is
stopped or changed. If an embed server requires an API key, set INFERENCE_API_KEY.

Examples:
  $ npx clipstack verify single-gpu
  $ npx clipstack verify single-gpu multi-gpu-4x kind-local --port-offset 10000
  $ npx clipstack verify kind-local --weights tiny --seconds 1
  $ npx clipstack verify single-gpu --no-synth --json > record.json
  $ npx clipstack verify single-gpu --target deployed
  $ npx clipstack verify marketplace --url embed-http=http://203.0.113.7:40123

Exit codes: 0 success, 1 a check failed, 2 usage or settings error.`,
    )
    .action(runVerify);
}
