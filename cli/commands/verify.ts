import { join, relative, resolve } from "node:path";
import { type Command, Option } from "commander";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import type { VerifyRecord } from "../../bench/record/record.ts";
import { renderText } from "../../bench/report/render-text.ts";
import {
  recordText,
  reportName,
  type SavedReports,
  saveReports,
} from "../../bench/report/save-reports.ts";
import type { ReferenceModel } from "../../bench/run/reference.ts";
import { serverEnv } from "../../contract/server-env.ts";
import { normalised } from "../../inference/preprocess/image-tensor.ts";
import { preprocess } from "../../inference/preprocess/preprocess.ts";
import { repositoryModel } from "../../model-tools/generate.ts";
import { modelInfo } from "../../model-tools/model-info.ts";
import type { VerifyEvent } from "../../verify/check-run.ts";
import { startProgress } from "../../verify/progress.ts";
import { verify } from "../../verify/verify.ts";
import { verifyDeployed } from "../../verify/verify-deployed.ts";
import { verifyReport } from "../../verify/verify-report.ts";
import {
  environmentFiles,
  filesWithHelm,
  outputFolder,
  synthesizeUnlessEdited,
} from "../artefact.ts";
import { deployedEnvironments } from "../host/deployed-environments.ts";
import { modelFile } from "../model/model-option.ts";
import { numberUpTo, portOffset } from "../option-values.ts";
import { project } from "../project.ts";
import { writeOutput } from "../write-output.ts";

const verifyTargets = ["simulation", "deployed"] as const;

interface VerifyArguments extends RunArguments {
  /** Local simulation, or the deployed containers or pods. */
  readonly target: (typeof verifyTargets)[number];
  /** Whether to synthesize first. Files edited by hand are not overwritten. */
  readonly synth: boolean;
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
  const { portOffset, model } = args;
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
    const files = filesWithHelm(environments, environmentFiles(environments, outdir), onNotice);
    const { MAX_IMAGE_PIXELS: maxPixels } = serverEnv.parse({});
    const common = {
      project,
      chooseModel: (own: string | undefined) => chooseModel(model, onEvent, own),
      samples: join(project, "model-tools/samples"),
      preprocess: async (image: Uint8Array) => normalised(await preprocess(image, { maxPixels })),
      portOffset,
      secondsPerEndpoint: args.seconds,
      signal,
      onEvent,
    };
    const record =
      args.target === "deployed"
        ? await verifyDeployed({
            ...common,
            environments: await deployedEnvironments(environments, files, {
              portOffset,
              signal,
              onNotice,
            }),
          })
        : await verify({
            ...common,
            environments: files,
            serverCommand: simulationServer,
            modelRepository: join(project, "model_repository"),
            modelFile: model === "generated" ? undefined : await writtenFile(model, onEvent),
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

type OnPhase = (event: VerifyEvent & { readonly kind: "phase" }) => void;

/**
 * Returns the ONNX file of `--model`, generated if missing, and its description for the record.
 *
 * @param own - Model file of the environment, used for `generated`; absent if it is not on this machine.
 */
export async function chooseModel(
  model: string,
  onEvent: OnPhase,
  own?: string,
): Promise<ReferenceModel> {
  const isOwn = model === "generated" && own !== undefined && own !== repositoryModel;
  const file = isOwn ? own : await writtenFile(model, onEvent);
  const { sha256, source, weights, architecture, seed } = await modelInfo(file);
  const name = !isOwn && (model === "tiny" || model === "generated") ? model : file;
  return { file, subject: { name, sha256, source, weights, architecture, seed } };
}

function writtenFile(model: string, onEvent: OnPhase): Promise<string> {
  return modelFile(model, (percent) =>
    onEvent({ kind: "phase", text: `generate the model, ${percent} %` }),
  );
}

/** Options of `verify` and `start`. */
export interface RunArguments {
  readonly portOffset: number;
  readonly model: string;
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
      "--model <model>",
      "generated (the environment's own file, or that of model_repository), tiny, or an ONNX file",
      "generated",
    )
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
  $ npx clipstack verify kind-local --model tiny --seconds 1
  $ npx clipstack verify single-gpu --no-synth --json > record.json
  $ npx clipstack verify single-gpu --target deployed

Exit codes: 0 success, 1 a check failed, 2 usage or settings error.`,
    )
    .action(runVerify);
}
