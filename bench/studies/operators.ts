import { UserError } from "../../contract/user-error.ts";
import { runCommand } from "../../target/load/run-process.ts";
import { type EnvironmentStudy, type OperatorResult, StudyUnavailable } from "./study.ts";

/** Share of each operator in the model's compute time, and operators that fall back to the CPU. */
export const operatorsStudy: EnvironmentStudy = {
  kind: "environment",
  id: "operators",
  async run({ environment, record, onPhase }) {
    if (environment.profiles.length === 0) {
      throw new StudyUnavailable("no model file to profile on this machine");
    }
    for (const profile of environment.profiles) {
      onPhase("profiling the operators");
      record.studies.push(await profile());
    }
  },
};

export interface OperatorOptions {
  readonly environment: string;
  /** Names of the services that run this model. */
  readonly service: string;
  readonly model: string;
  /** ONNX file. */
  readonly modelPath: string;
  /** Command of `inference/session/profile-session.mjs`. */
  readonly command: readonly string[];
  /** Session options of ONNX Runtime. */
  readonly sessionOptions: { readonly executionProviders: readonly string[] };
  readonly batch: number;
  readonly runs: number;
  readonly signal: AbortSignal;
}

/** Output of the program, with the total time of all runs. */
interface Profile {
  readonly runs: number;
  readonly rows: readonly {
    readonly operator: string;
    readonly provider: string;
    readonly nodes: number;
    readonly us: number;
  }[];
}

/** Runs that allocate memory, not profiled. */
const warmupRuns = 2;
const cpuProvider = "CPUExecutionProvider";
/** Disables telemetry, as the server does. */
const environment = { ORT_DISABLE_TELEMETRY: "1" };

/**
 * Profiles the operators of a model with ONNX Runtime, in a separate process on this machine.
 *
 * @throws {UserError} one line: the error of ONNX Runtime.
 */
export async function profileOperators(options: OperatorOptions): Promise<OperatorResult> {
  const { command, modelPath, sessionOptions, batch, runs, signal } = options;
  const job = { modelPath, sessionOptions, batch, warmupRuns, runs };
  try {
    const profile = await runCommand<Profile>(
      { command, args: [JSON.stringify(job)], env: environment },
      "the profile",
      signal,
    );
    return operatorShares(options, profile);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    throw new UserError(error.message.replaceAll("\n", " "));
  }
}

/** Result of a profile, with the largest share first. */
export function operatorShares(
  {
    environment,
    service,
    model,
    batch,
    sessionOptions,
  }: Pick<OperatorOptions, "environment" | "service" | "model" | "batch" | "sessionOptions">,
  { runs, rows }: Profile,
): OperatorResult {
  const all = rows.reduce((sum, { us }) => sum + us, 0);
  const onCpu = sessionOptions.executionProviders.every((name) => name === "cpu");
  const nodesOnCpu = rows
    .filter(({ provider }) => provider === cpuProvider)
    .reduce((sum, { nodes }) => sum + nodes, 0);
  return {
    study: "operators",
    environment,
    service,
    model,
    batch,
    runs,
    nodes: rows.reduce((sum, { nodes }) => sum + nodes, 0),
    cpuFallbacks: onCpu ? 0 : nodesOnCpu,
    operators: rows
      .map(({ operator, provider, nodes, us }) => ({
        operator,
        provider,
        nodes,
        msPerRun: us / 1_000 / Math.max(1, runs),
        share: all === 0 ? 0 : us / all,
      }))
      .sort((a, b) => b.share - a.share),
    notes: [
      onCpu
        ? "Profiled on this machine with the CPU execution provider: shares on a GPU differ, and fallbacks to the CPU are not visible."
        : "The time of an operator that runs asynchronously on a GPU is that of its launch.",
      "Profiling slows every operator slightly, so the times are upper bounds; use the shares.",
    ],
  };
}
