import type { Command } from "commander";
import { addDrillOutput, type DrillOutput, outputDrill } from "../prepare/drill-output.ts";
import { type CanaryArguments, runCanary } from "../prepare/run-canary.ts";
import { synthesizedFile } from "../shared/artefact.ts";
import { wholeNumber } from "../shared/option-values.ts";

interface Arguments extends CanaryArguments, DrillOutput {
  readonly report: string;
  readonly synth: boolean;
}

/** Registers `clipstack canary`. */
export function registerCanary(program: Command): void {
  const command = program
    .command("canary")
    .argument("<environment>", "environment of the stack kubernetes, with its new settings")
    .option("--weight <percent>", "share of the requests for the candidate", wholeNumber(1, 50), 10)
    .option("--observe <seconds>", "time for which it receives them", wholeNumber(30, 86_400), 300)
    .option("--prometheus <url>", "address of Prometheus (default: triton.autoscaler.prometheus)")
    .option(
      "--weights <weights>",
      "weights of the reference embeddings, as for verify",
      "generated",
    )
    .option("--no-synth", "use the existing output in cdktf.out");
  addDrillOutput(command)
    .addHelpText(
      "after",
      `
Installs the settings of the environment file as a second Helm release with one pod of each component, verifies one of its
pods, and sends it a share of the requests through the weights of the HTTPRoute (chartValues.httpRoute). Its errors and
latency in Prometheus must stay within the SLO (chartValues.prometheusRule.latencySloSeconds), or be no worse than those of
the deployed release. The release is then upgraded; otherwise it stays as it is. The candidate is removed in both cases,
also after Ctrl-C, and a record is written to bench/reports. Requires helm. If an API key is required, set INFERENCE_API_KEY.

Examples:
  $ npx clipstack canary k8s-gpu
  $ npx clipstack canary k8s-gpu --weight 5 --observe 3600 --prometheus http://prometheus-operated.monitoring.svc:9090

Exit codes: 0 promoted, 1 rolled back, 2 usage or settings error, 130 interrupted.`,
    )
    .action(async (environment: string, args: Arguments) => {
      await synthesizedFile(environment, args.synth);
      await outputDrill(args, (interrupt) => runCanary(environment, args, interrupt));
    });
}
