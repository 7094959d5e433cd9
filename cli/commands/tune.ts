import { availableParallelism } from "node:os";
import { type Command, InvalidArgumentError, Option } from "commander";
import type { RequestedEndpoint } from "../../bench/measure/choose-endpoints.ts";
import type { Slo } from "../../bench/record/slo-search.ts";
import { tuneVerdict } from "../../bench/report/tune-section.ts";
import { maxMeasurements } from "../../bench/tune/coordinate-search.ts";
import { runTune } from "../../bench/tune/run-tune.ts";
import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  addMeasurementOptions,
  addOutputOptions,
  type BenchArguments,
  backends,
  sloOf,
} from "../prepare/bench-options.ts";
import { runAndReport } from "../prepare/bench-output.ts";
import { readEnvironmentText } from "../prepare/environment-text.ts";
import {
  requireWritableFile,
  withCandidates,
  withSettings,
  writeTunedFile,
} from "../prepare/tune-environment.ts";
import { changesOf, defaultEndpoint, selected, tunableSettings } from "../prepare/tune-settings.ts";
import { listOf, portOffset, wholeNumber } from "../shared/option-values.ts";

interface TuneArguments extends BenchArguments {
  readonly slo: Slo;
  readonly backend?: RequestedEndpoint;
  readonly vary?: readonly string[];
  readonly concurrency: number;
  readonly dryRun?: true;
  readonly write?: true;
}

/** `clipstack tune`: searches the settings with the highest rate within an SLO. */
export function registerTune(program: Command): void {
  const command = program
    .command("tune")
    .argument("<environment>", "environment of a Docker host whose file is tuned")
    .addOption(
      new Option(
        "--slo <percentile=duration>",
        "p50, p95 or p99 that must be within a duration: p99=200ms",
      )
        .argParser(sloOf)
        .makeOptionMandatory(),
    )
    .option(
      "--backend <name>",
      "endpoint whose requests are measured: embed-http, onnx-grpc, … (default: the embed API, otherwise Triton over HTTP)",
      oneEndpoint,
    )
    .option(
      "--vary <settings>",
      "settings to vary: maxBatchSize,modelInstances (default: all)",
      listOf(String),
    )
    .option("--rounds <number>", "maximum rounds of each comparison", wholeNumber(2, 100), 5)
    .option(
      "--concurrency <number>",
      "clients of the closed loop whose throughput bounds the search",
      wholeNumber(1, 4_096),
      16,
    )
    .option("--dry-run", "print the values to try, and measure nothing")
    .option("--write", "write the best settings into the file of the environment")
    .option(
      "--port-offset <number>",
      "offset added to every local port, if ports are in use",
      portOffset,
      0,
    );
  addMeasurementOptions(command);
  addOutputOptions(command).addHelpText("after", help).action(tune);
}

const help = `
Searches the settings that govern the rate within the SLO, one after another and each from the best so far, first those that act on the
bottleneck of the present settings. In each round, every candidate is started as a local simulation, and its highest rate within the
SLO is searched as by 'clipstack bench --slo'. From the third round on, a candidate whose interval lies below the fastest is ended; one
that misses the SLO is ended at once. Finally the best settings are compared with the present ones in rounds of their own, and only a
ratio whose 95 % interval is above 1 counts as better: docs/tune.md.

Without --write nothing is changed. With it, the file gets the best settings, with the record as the reason in a comment; a file that was
changed during the run is kept. Ctrl-C saves what was measured and writes nothing.

Examples:
  $ npx clipstack tune cpu-host --slo p99=200ms
  $ npx clipstack tune cpu-host --slo p99=200ms --vary maxBatchSize,maxQueueDelayMicroseconds --rounds 4 --write
  $ npx clipstack tune cpu-host --slo p99=200ms --dry-run

Exit codes: 0 improved or already the best, 1 no candidate meets the SLO or no measurement is valid, 2 wrong usage or settings, 130 interrupted.`;

function oneEndpoint(text: string): RequestedEndpoint {
  const [endpoint, ...others] = backends(text);
  if (endpoint?.byName && others.length === 0) return endpoint;
  throw new InvalidArgumentError(`It must be one endpoint, like embed-http, got '${text}'.`);
}

async function tune(name: string, args: TuneArguments): Promise<void> {
  const tuned = readEnvironmentText(name);
  if (args.write) requireWritableFile(tuned);
  const { environment } = tuned;
  const endpoint = args.backend ?? defaultEndpoint(environment);
  const { models } = environment.settings;
  const model = models.find((spec) => args.model === undefined || spec.name === args.model);
  if (model === undefined) {
    const names = models.map((spec) => spec.name).join(", ");
    throw new UserError(`--model must be a model of ${name}: ${names}, got '${args.model}'`);
  }
  const host = {
    cores: availableParallelism(),
    maxBatch: model.batching.maximum,
    limitMs: args.slo.limitMs,
  };
  const variables = selected(tunableSettings(environment, endpoint.endpoint, host), args.vary);
  if (variables.length === 0) throw new UserError(`${name}: no setting has another value to try`);
  const { rounds } = args;
  const measurementCount = maxMeasurements({ variables, rounds });
  if (args.dryRun) {
    const lines = variables.map(
      ({ setting, current, values }) => `${setting}: ${current}, to try ${values.join(", ")}`,
    );
    console.log(
      `${lines.join("\n")}\nat most ${measurementCount} measurements of ${benchEndpointName(endpoint)}`,
    );
    return;
  }
  const present = Object.fromEntries(variables.map(({ setting, current }) => [setting, current]));
  // fails now, and not after the run, if the file cannot take them
  withSettings(tuned.text, present);
  const run = await runAndReport(
    {
      environments: [name],
      args: { ...args, synth: true },
      endpoints: [endpoint],
      measurementCount,
    },
    ({ context, record, reference, sources: [source] }) =>
      withCandidates(tuned, context.signal, (synthesize) =>
        runTune({
          ...{ context, record, reference, environment: name, endpoint, variables, rounds },
          ...{ concurrency: args.concurrency, host },
          slo: { slo: args.slo, arrivals: "poisson", seed: args.seed },
          sourceOf: async (candidate, settings) => {
            if (source?.kind !== "simulated") throw new Error(`${name} is not simulated`);
            return {
              ...source,
              environment: await synthesize(candidate, changesOf(present, settings)),
            };
          },
        }),
      ),
  );
  const result = run?.record.tune;
  if (run === undefined || result?.verdict !== "improved") return;
  const best = result.candidates.find(({ name: candidate }) => candidate === result.best);
  const changes = changesOf(present, best?.settings ?? present);
  if (!args.write) {
    console.error(`nothing was written (--write): ${name} is unchanged`);
    return;
  }
  const weights = args.weights === "generated" ? "" : `, weights ${args.weights}`;
  writeTunedFile(tuned, changes, `${tuneVerdict(run.record, result)}${weights}; ${run.path}`);
  console.error(
    `${name}: wrote ${Object.entries(changes)
      .map(([setting, value]) => `${setting} ${value}`)
      .join(", ")}`,
  );
}
