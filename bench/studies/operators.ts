import { UserError } from "../../contract/user-error.ts";
import { runCommand } from "../baselines/run-process.ts";
import type { StudyResult } from "../record/bench-record.ts";

export interface OperatorOptions {
  readonly environment: string;
  /** Services that run this model. */
  readonly service: string;
  /** Name for people. */
  readonly model: string;
  /** ONNX file. */
  readonly modelPath: string;
  /** Program that profiles: `inference/session/profile-session.mjs`. */
  readonly command: readonly string[];
  /** As ONNX Runtime takes them. */
  readonly sessionOptions: { readonly executionProviders: readonly string[] };
  readonly batch: number;
  readonly runs: number;
  readonly signal: AbortSignal;
}

type OperatorResult = Extract<StudyResult, { readonly study: "operators" }>;

/** What the program prints: the time of all runs together. */
interface Profile {
  readonly runs: number;
  readonly rows: readonly {
    readonly operator: string;
    readonly provider: string;
    readonly nodes: number;
    readonly us: number;
  }[];
}

/** The first runs allocate. */
const warmupRuns = 2;
const cpuProvider = "CPUExecutionProvider";
/** As the server does: the official build reports model and machine unless this is set. */
const environment = { ORT_DISABLE_TELEMETRY: "1" };

/**
 * Which operators take the compute, from ONNX Runtime's profile of a model, in a process of its own on this machine.
 *
 * @throws {UserError} one line: what ONNX Runtime said.
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

/** The rows of a profile, the largest share first. */
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
        ? "Profiled on this machine with the CPU execution provider: shares on a GPU differ, and fallbacks to the CPU cannot be seen here."
        : "Times of an operator on a GPU are those of its launch where it runs asynchronously.",
      "A profile slows each operator a little: the shares matter, the times are upper bounds.",
    ],
  };
}
