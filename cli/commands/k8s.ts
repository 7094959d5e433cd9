import { mkdirSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import type { Command } from "commander";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import { UserError } from "../../contract/user-error.ts";
import { renderText } from "../../report/render/render-text.ts";
import { recordText, reportName } from "../../report/save-reports.ts";
import { readSamples } from "../../target/reference/reference.ts";
import type { Drill, DrillOptions } from "../../verify/drills/drill.ts";
import type { DrillRecord } from "../../verify/drills/drill-record.ts";
import { drillReport } from "../../verify/drills/drill-report.ts";
import { drills } from "../../verify/drills/registry.ts";
import { runDrill } from "../../verify/drills/run-drill.ts";
import { apiKeyVariable } from "../cluster/deployed-environments.ts";
import { addTargetOptions, drillTarget, type TargetArguments } from "../cluster/drill-target.ts";
import { registerManifests } from "../cluster/manifests.ts";
import { numberUpTo, wholeNumber } from "../shared/option-values.ts";
import { project } from "../shared/project.ts";
import { writeOutput } from "../shared/write-output.ts";

/** Requests per second that two pods of kind-local sustain without triggering the autoscaler. */
const defaultRate = 2;
const defaultConcurrency = 8;

const sampleLimit = 8;

/**
 * Runs one drill on a Deployment with the project's sample images, and restores the cluster.
 *
 * @throws {UserError} one line if the drill cannot start.
 * @throws {Interrupted} on SIGINT and SIGTERM.
 */
async function drillCluster(
  drill: Drill,
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
  return runDrill(drill, {
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
  for (const drill of Object.values(drills)) register(k8s, drill);
  registerManifests(k8s);
}

function register(k8s: Command, drill: Drill): void {
  const { name, question, help, loadOption } = drill;
  const command = addTargetOptions(
    k8s
      .command(name)
      .description(question)
      .argument("[environment]", "environment on a cluster (default: kind-local)"),
  );
  if (loadOption === "rate") {
    command.option("--rate <number>", "requests per second", numberUpTo(100), defaultRate);
  }
  if (loadOption === "concurrency") {
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
${help}

Examples:
  $ npx clipstack k8s ${name}
  $ npx clipstack k8s ${name} k8s-gpu --json > record.json
  $ npx clipstack k8s ${name} --context my-cluster --namespace clipstack --deployment clipstack-embed

Exit codes: 0 success, 1 a check failed, 2 usage or settings error, 130 interrupted.`,
    )
    .action((environment: string | undefined, args: DrillArguments) =>
      run(drill, environment, args),
    );
}

async function run(
  drill: Drill,
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
