import type { Command } from "commander";
import { UserError } from "../../contract/user-error.ts";
import { projectFolder } from "../../model-tools/files/folders.ts";
import { readSamples } from "../../target/reference/reference.ts";
import type { ClusterDrill } from "../../verify/drills/cluster-run.ts";
import { clusterDrills } from "../../verify/drills/registry.ts";
import { runClusterDrill } from "../../verify/drills/run-cluster-drill.ts";
import { apiKeyVariable } from "../cluster/deployed-environments.ts";
import { addTargetOptions, drillTarget, type TargetArguments } from "../cluster/drill-target.ts";
import { registerManifests } from "../cluster/manifests.ts";
import { addDrillOutput, type DrillOutput, outputDrill } from "../prepare/drill-output.ts";
import { numberUpTo, wholeNumber } from "../shared/option-values.ts";

/** Requests per second that two pods of kind-local sustain without triggering the autoscaler. */
const defaultRate = 2;
const defaultConcurrency = 8;

interface DrillArguments extends TargetArguments, DrillOutput {
  readonly rate: number;
  readonly concurrency: number;
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
  for (const drill of Object.values(clusterDrills)) register(k8s, drill);
  registerManifests(k8s);
}

function register(k8s: Command, drill: ClusterDrill): void {
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
  addDrillOutput(command)
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

/** Runs one drill on a Deployment with the project's sample images, and restores the cluster. */
async function run(
  drill: ClusterDrill,
  environment: string | undefined,
  args: DrillArguments,
): Promise<void> {
  const target = drillTarget(environment, args);
  const { deployment, requiresKey } = target;
  await outputDrill(args, async ({ signal }) => {
    const apiKey = requiresKey ? process.env[apiKeyVariable]?.trim() || undefined : undefined;
    if (requiresKey && apiKey === undefined) {
      throw new UserError(
        `${apiKeyVariable} must be set, because ${deployment} requires an API key`,
      );
    }
    if (requiresKey && target.url === undefined) {
      throw new UserError(
        `--url must be set, because ${deployment} requires an API key and the API server does not forward it`,
      );
    }
    return runClusterDrill(drill, {
      target,
      ratePerSecond: args.rate,
      concurrency: args.concurrency,
      apiKey,
      repository: projectFolder,
      images: readSamples(),
      signal,
      onStep: (line) => console.error(line),
    });
  });
}
