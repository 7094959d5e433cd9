import { mkdirSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import type { Command } from "commander";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import { renderText } from "../../bench/report/render-text.ts";
import { recordText, reportName } from "../../bench/report/save-reports.ts";
import { readSamples } from "../../bench/run/reference.ts";
import { UserError } from "../../contract/user-error.ts";
import { drainDrill } from "../../verify/drills/drain.ts";
import type { Drill, DrillOptions } from "../../verify/drills/drill.ts";
import {
  type DrillName,
  type DrillRecord,
  drillQuestions,
} from "../../verify/drills/drill-record.ts";
import { drillReport } from "../../verify/drills/drill-report.ts";
import { quotaDrill } from "../../verify/drills/quota.ts";
import { rolloutDrill } from "../../verify/drills/rollout.ts";
import { runDrill } from "../../verify/drills/run-drill.ts";
import { scaleDrill } from "../../verify/drills/scale.ts";
import { addTargetOptions, drillTarget, type TargetArguments } from "../cluster/drill-target.ts";
import { registerManifests } from "../cluster/manifests.ts";
import { numberUpTo, wholeNumber } from "../option-values.ts";
import { project } from "../project.ts";
import { writeOutput } from "../write-output.ts";

const drills: Readonly<Record<DrillName, Drill>> = {
  rollout: rolloutDrill,
  scale: scaleDrill,
  drain: drainDrill,
  quota: quotaDrill,
};

/** Requests per second that two pods of kind-local answer without their autoscaler. */
const defaultRate = 2;
const defaultConcurrency = 8;

const sampleLimit = 8;
const apiKeyVariable = "INFERENCE_API_KEY";

/**
 * Do one exercise on a Deployment of a cluster, and make the cluster what it was.
 *
 * @param options - Less the images: the project's samples are sent.
 * @throws {UserError} one line where it cannot begin; {@link Interrupted} when the signal came.
 */
async function drillCluster(
  exercise: DrillName,
  options: Omit<DrillOptions, "images" | "apiKey" | "repository">,
): Promise<DrillRecord> {
  const apiKey = process.env[apiKeyVariable]?.trim() || undefined;
  const { target } = options;
  if (target.asksForKey && apiKey === undefined) {
    throw new UserError(`${apiKeyVariable} must be set: ${target.deployment} asks for a key`);
  }
  if (target.asksForKey && target.url === undefined) {
    throw new UserError(
      `${target.deployment} asks for a key, which the API server does not pass on: give --url`,
    );
  }
  return runDrill(drills[exercise], {
    ...options,
    repository: project,
    images: readSamples(join(project, "model-tools/samples"), sampleLimit),
    apiKey: target.asksForKey ? apiKey : undefined,
  });
}

interface DrillArguments extends TargetArguments {
  readonly rate: number;
  readonly concurrency: number;
  readonly report: string;
  readonly json?: true;
  readonly output?: string;
}

const notes: Readonly<Record<DrillName, string>> = {
  rollout: `Asks for an image that is not there, under load: the rollout must stand still while the old pods serve. Then
restarts every pod, and rolls back. The versions to roll back to are those of before.`,
  scale: `Sends requests until the autoscaler has added a pod that is ready, then next to none until it is back at its
minimum: the scale-down window of the autoscaler (180 s in kind-local) and a minute or two.`,
  drain: `Asks for evictions as 'kubectl drain' does. The disruption budget allows the first and refuses the next; the
Deployment makes up for the evicted pod.`,
  quota: `Asks for pods with more CPU, memory or GPUs than the quota has left. None is ever started, accepted or not.`,
};

/** `clipstack k8s …`: what a cluster adds, shown on the real one. */
export function registerK8s(program: Command): void {
  const k8s = program.command("k8s").addHelpText(
    "after",
    `
Each exercise leaves the cluster as it was, also after Ctrl-C, and writes a record to bench/reports.

Examples:
  $ npx clipstack k8s rollout
  $ npx clipstack k8s manifests kind-local | kubectl apply --server-side -f -`,
  );
  for (const exercise of Object.keys(drills) as DrillName[]) register(k8s, exercise);
  registerManifests(k8s);
}

function register(k8s: Command, exercise: DrillName): void {
  const command = addTargetOptions(
    k8s
      .command(exercise)
      .description(drillQuestions[exercise])
      .argument("[environment]", "an environment in a cluster (default: kind-local)"),
  );
  if (exercise === "rollout" || exercise === "drain") {
    command.option("--rate <number>", "requests a second", numberUpTo(100), defaultRate);
  }
  if (exercise === "scale") {
    command.option(
      "--concurrency <number>",
      "clients; each sends its next request after its last answer",
      wholeNumber(1, 128),
      defaultConcurrency,
    );
  }
  command
    .option("--report <folder>", "where the record goes", join("bench", "reports"))
    .option("--json", "print the record, and nothing else, on stdout")
    .option("--output <file>", "write the record to a file as well")
    .addHelpText(
      "after",
      `
${notes[exercise]}

Examples:
  $ npx clipstack k8s ${exercise}
  $ npx clipstack k8s ${exercise} k8s-gpu --json > record.json
  $ npx clipstack k8s ${exercise} --context my-cluster --namespace clipstack --deployment clipstack-embed

Exit codes: 0 all good, 1 a check failed, 2 wrong usage or settings, 130 interrupted.`,
    )
    .action((environment: string | undefined, args: DrillArguments) =>
      run(exercise, environment, args),
    );
}

async function run(
  exercise: DrillName,
  environment: string | undefined,
  args: DrillArguments,
): Promise<void> {
  const target = drillTarget(environment, args);
  const interrupt = onInterrupt();
  try {
    const record = await drillCluster(exercise, {
      target,
      ratePerSecond: args.rate,
      concurrency: args.concurrency,
      signal: interrupt.signal,
      onStep: (line) => console.error(line),
    });
    const folder = resolve(project, args.report);
    const saved = saveDrillRecord(record, folder);
    if (args.output !== undefined) writeOutput(args.output, recordText(record));
    if (args.json) process.stdout.write(recordText(record));
    else console.log(`\n${renderText(drillReport(record))}record: ${relative("", saved)}`);
    process.exitCode = record.passed ? 0 : 1;
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    console.error(`clipstack: interrupted; ${error.message}`);
    process.exitCode = error.exitCode;
  } finally {
    interrupt.remove();
  }
}

/** @returns Path of the file. */
function saveDrillRecord(record: DrillRecord, folder: string): string {
  const file = join(folder, `${reportName(record.startedAt, `k8s-${record.exercise}`)}.json`);
  try {
    mkdirSync(folder, { recursive: true });
  } catch (error) {
    throw new UserError(`--report ${folder} cannot be made: ${(error as Error).message}`);
  }
  writeOutput(file, recordText(record), "--report");
  return file;
}
