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
  drillNames,
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

/** Requests per second that two pods of kind-local sustain without triggering the autoscaler. */
const defaultRate = 2;
const defaultConcurrency = 8;

const sampleLimit = 8;
const apiKeyVariable = "INFERENCE_API_KEY";

/**
 * Runs one drill on a Deployment with the project's sample images, and restores the cluster.
 *
 * @throws {UserError} one line if the drill cannot start.
 * @throws {Interrupted} on SIGINT and SIGTERM.
 */
async function drillCluster(
  drill: DrillName,
  options: Omit<DrillOptions, "images" | "apiKey" | "repository">,
): Promise<DrillRecord> {
  const apiKey = process.env[apiKeyVariable]?.trim() || undefined;
  const { target } = options;
  if (target.requiresKey && apiKey === undefined) {
    throw new UserError(
      `${apiKeyVariable} must be set, because ${target.deployment} requires an API key`,
    );
  }
  if (target.requiresKey && target.url === undefined) {
    throw new UserError(
      `--url must be set, because ${target.deployment} requires an API key and the API server does not forward it`,
    );
  }
  return runDrill(drills[drill], {
    ...options,
    repository: project,
    images: readSamples(join(project, "model-tools/samples"), sampleLimit),
    apiKey: target.requiresKey ? apiKey : undefined,
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
  rollout: `Under load: rolls out a missing image, which must block the rollout while the old pods serve; then restarts every
pod, and rolls back. Existing revisions remain available for a rollback.`,
  scale: `Sends requests until the autoscaler has added a pod that is ready, then a low rate until it is back at its
minimum. Takes the scale-down window of the autoscaler (180 s in kind-local) and one or two minutes.`,
  drain: `Evicts pods as 'kubectl drain' does. The PodDisruptionBudget allows the first eviction and rejects the next; the
Deployment replaces the evicted pod.`,
  quota: `Creates pods that exceed the CPU, memory or GPUs left in the ResourceQuota. No such pod is ever started.`,
};

/** Registers `clipstack k8s`: drills on a running cluster, and the manifests of an environment. */
export function registerK8s(program: Command): void {
  const k8s = program.command("k8s").addHelpText(
    "after",
    `
Each drill restores the cluster, also after Ctrl-C, and writes a record to bench/reports.

Examples:
  $ npx clipstack k8s rollout
  $ npx clipstack k8s manifests kind-local | kubectl apply --server-side -f -`,
  );
  for (const drill of drillNames) register(k8s, drill);
  registerManifests(k8s);
}

function register(k8s: Command, drill: DrillName): void {
  const command = addTargetOptions(
    k8s
      .command(drill)
      .description(drillQuestions[drill])
      .argument("[environment]", "environment on a cluster (default: kind-local)"),
  );
  if (drill === "rollout" || drill === "drain") {
    command.option("--rate <number>", "requests per second", numberUpTo(100), defaultRate);
  }
  if (drill === "scale") {
    command.option(
      "--concurrency <number>",
      "clients in a closed loop",
      wholeNumber(1, 128),
      defaultConcurrency,
    );
  }
  command
    .option("--report <folder>", "folder for the record", join("bench", "reports"))
    .option("--json", "print only the record, as JSON")
    .option("--output <file>", "also write the record to a file")
    .addHelpText(
      "after",
      `
${notes[drill]}

Examples:
  $ npx clipstack k8s ${drill}
  $ npx clipstack k8s ${drill} k8s-gpu --json > record.json
  $ npx clipstack k8s ${drill} --context my-cluster --namespace clipstack --deployment clipstack-embed

Exit codes: 0 success, 1 a check failed, 2 usage or settings error, 130 interrupted.`,
    )
    .action((environment: string | undefined, args: DrillArguments) =>
      run(drill, environment, args),
    );
}

async function run(
  drill: DrillName,
  environment: string | undefined,
  args: DrillArguments,
): Promise<void> {
  const target = drillTarget(environment, args);
  const interrupt = onInterrupt();
  try {
    const record = await drillCluster(drill, {
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

/** Saves a record, and returns the path of its file. */
function saveDrillRecord(record: DrillRecord, folder: string): string {
  const file = join(folder, `${reportName(record.startedAt, `drill-${record.drill}`)}.json`);
  try {
    mkdirSync(folder, { recursive: true });
  } catch (error) {
    throw new UserError(
      `--report ${folder} cannot be created: ${(error as NodeJS.ErrnoException).code}`,
    );
  }
  writeOutput(file, recordText(record), "--report");
  return file;
}
