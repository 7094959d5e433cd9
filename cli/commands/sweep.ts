import { type Command, Option } from "commander";
import type { RequestedEndpoint } from "../../bench/measure/choose-endpoints.ts";
import { readBenchRecord } from "../../bench/record/bench-record.ts";
import { type StudyId, studyIds, studyQuestions } from "../../bench/record/study-result.ts";
import { runStudies } from "../../bench/studies/run-studies.ts";
import type { StudyGrid } from "../../bench/studies/study.ts";
import { endpointsOfStudies } from "../../bench/studies/study-endpoints.ts";
import { maxImagesPerRequest } from "../../contract/embed-api.ts";
import { requireImages } from "../../contract/model-shapes.ts";
import { UserError } from "../../contract/user-error.ts";
import type { ChannelsOption } from "../../target/load/channels.ts";
import {
  addBenchOptions,
  type BenchArguments,
  backends,
  channels,
} from "../prepare/bench-options.ts";
import { runAndReport } from "../prepare/bench-output.ts";
import { withStudyEnvironments } from "../prepare/study-environments.ts";
import { listOf, wholeNumber } from "../shared/option-values.ts";

interface SweepArguments extends BenchArguments {
  readonly environment?: readonly string[];
  readonly backend?: readonly RequestedEndpoint[];
  readonly batchSizes?: readonly number[];
  readonly concurrency?: readonly number[];
  readonly queueDelay: readonly number[];
  readonly channels: readonly ChannelsOption[];
  readonly against?: string;
  readonly restart?: true;
}

/** Options that determine the values of the studies. */
type GridArguments = Pick<
  SweepArguments,
  "target" | "url" | "batchSizes" | "concurrency" | "channels" | "queueDelay"
>;

const all = "all";

const defaults = {
  batchSizes: [1, 4, 8, 16, 32],
  concurrency: {
    concurrency: [1, 2, 4, 8, 16, 32],
    "queue-delay": [1, 8, 32],
    scaling: [1, 4],
    topology: [1, 8, 32],
  },
  protocol: { batchSizes: [1, 8], concurrency: [1, 16] },
  channels: ["each", "shared"],
  queueDelaysUs: [0, 1_000, 5_000, 10_000],
  rounds: 3,
} as const;

/** Defaults for deployments and addresses: the grids of the published tables, which take half an hour in a local simulation. */
const published = {
  concurrency: [1, 2, 4, 8, 16, 32, 64, 128],
  protocol: { batchSizes: [1, 4, 8, 16, 32], concurrency: [1, 8, 16] },
} as const;

/** Registers `clipstack sweep`, which runs studies; each answers one question about performance. */
export function registerSweep(program: Command): void {
  const command = program
    .command("sweep")
    .argument("<study...>", `${studyIds.join(", ")}; or ${all}`)
    .option("--environment <names...>", "environments to study sequentially (default: single-gpu)");
  addStudyGridOptions(command);
  addStudyRunOptions(command);
  addBenchOptions(command).addHelpText("after", help).action(sweep);
}

function addStudyGridOptions(command: Command): void {
  const { concurrency, protocol } = defaults;
  command
    .option(
      "--backend <names>",
      "endpoints to measure, as for 'clipstack bench' (default: the most informative ones of each study)",
      backends,
    )
    .option(
      "--batch-sizes <numbers>",
      `images per request (default: ${defaults.batchSizes}; protocol in a simulation ${protocol.batchSizes})`,
      listOf(wholeNumber(1, maxImagesPerRequest)),
    )
    .option(
      "--concurrency <numbers>",
      `clients; for scaling, per GPU (default: ${concurrency.concurrency}, deployed ${published.concurrency}; protocol ${protocol.concurrency}, deployed ${published.protocol.concurrency}; queue-delay ${concurrency["queue-delay"]}; scaling ${concurrency.scaling}; topology ${concurrency.topology})`,
      listOf(wholeNumber(1, 4_096)),
    )
    .addOption(
      new Option(
        "--channels <list>",
        "for protocol: connections of the clients, a list of the values of 'clipstack bench --channels'",
      )
        .argParser(listOf(channels))
        .default(defaults.channels, defaults.channels.join(",")),
    )
    .addOption(
      listOption(
        "--queue-delay <microseconds>",
        "queue delays of the dynamic batcher",
        listOf(wholeNumber(0, 10_000_000)),
        defaults.queueDelaysUs,
      ),
    );
}

function addStudyRunOptions(command: Command): void {
  command
    .option(
      "--rounds <number>",
      "number of cold starts, and of measurements of each load point (queue-delay and memory: one)",
      wholeNumber(1, 100),
      defaults.rounds,
    )
    .option(
      "--against <record>",
      "with --target deployed: record of the study 'scaling' or 'topology' of another deployment to compare with",
    )
    .option(
      "--restart",
      "with --target deployed: allow cold-start to restart the containers; requests fail during restarts",
    );
}

const help = `
Studies:
${studyIds.map((id) => `  ${id.padEnd(14)}${studyQuestions[id]}`).join("\n")}

Each study is a section of the report. ${all} runs every study that the environment supports, which takes half an hour with the
default sizes and the full model on a small machine, and minutes with --weights tiny --rounds 1.
protocol and concurrency measure the loads of the published tables in deployments and at addresses (--target deployed, --url), which
takes half an hour; a local simulation measures fewer unless --batch-sizes and --concurrency are given.
queue-delay reloads the model with other configurations and restores the original one, also after Ctrl-C. It requires
--model-control-mode explicit, as in local simulations. If the model control API requires a key, it is read from the deployed
container; keys of pods and of addresses given with --url are not supported. scaling and topology measure a deployed environment as
it is, and compare it with the record of another deployment (--against).

Examples:
  $ npx clipstack sweep all --weights tiny --rounds 1
  $ npx clipstack sweep batch concurrency --environment single-gpu --backend embed,onnx
  $ npx clipstack sweep protocol --backend onnx --weights tiny --channels each,shared,4,new
  $ npx clipstack sweep scaling --environment single-gpu --target deployed --output one-gpu.json
  $ npx clipstack sweep scaling --environment multi-gpu-4x --target deployed --against one-gpu.json

Exit codes: 0 success, 1 a study failed, an endpoint differs or requests failed, 2 wrong usage or settings, 130 interrupted.`;

function listOption(
  flags: string,
  description: string,
  parse: (text: string) => readonly number[],
  values: readonly number[],
): Option {
  return new Option(flags, description).argParser(parse).default(values, values.join(","));
}

async function sweep(names: readonly string[], args: SweepArguments): Promise<void> {
  const { environment = [], backend = [] } = args;
  const { studies, named } = studiesOf(names);
  requireDeployed(args);
  const grid = gridOf(args);
  await runAndReport(
    {
      environments: environment.flatMap((name) => name.split(",")),
      args,
      endpoints: endpointsOfStudies(studies, backend),
    },
    (prepared) => {
      requireImages(prepared.spec);
      return withStudyEnvironments(
        prepared,
        {
          rounds: args.rounds,
          against: args.against,
          mayRestart: args.restart === true,
        },
        (environments) =>
          runStudies({
            ...prepared,
            studies,
            named,
            environments,
            endpoints: backend,
            grid,
          }),
      );
    },
  );
}

function requireDeployed({ target, against, restart }: SweepArguments): void {
  const deployedOnly = [
    ...(against === undefined ? [] : ["--against"]),
    ...(restart === undefined ? [] : ["--restart"]),
  ];
  if (deployedOnly.length > 0 && target !== "deployed") {
    throw new UserError(`${deployedOnly.join(" and ")}: requires --target deployed`);
  }
  if (against === undefined) return;
  try {
    readBenchRecord(against);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    throw new UserError(`--against ${error.message}`);
  }
}

export function studiesOf(names: readonly string[]): {
  readonly studies: readonly StudyId[];
  readonly named: boolean;
} {
  const words = names.flatMap((name) => name.split(","));
  const unknown = words.find((name) => name !== all && !studyIds.some((id) => id === name));
  if (unknown !== undefined) {
    throw new UserError(
      `study must be one of ${studyIds.join(", ")}, ${all}, got '${unknown}'; select environments with --environment`,
    );
  }
  const isAll = words.includes(all);
  return { studies: studyIds.filter((id) => isAll || words.includes(id)), named: !isAll };
}

/** Returns the numbers of clients and batch sizes of each study: those of the options, of the published tables, or fewer for a local simulation. */
export function gridOf(args: GridArguments): StudyGrid {
  const { concurrency, batchSizes } = args;
  const isSimulation = args.url === undefined && args.target !== "deployed";
  const protocol = isSimulation ? defaults.protocol : published.protocol;
  return {
    batchSizes: batchSizes ?? defaults.batchSizes,
    protocol: {
      batchSizes: batchSizes ?? protocol.batchSizes,
      concurrency: concurrency ?? protocol.concurrency,
      channels: args.channels,
    },
    concurrency:
      concurrency === undefined
        ? {
            ...defaults.concurrency,
            ...(isSimulation ? {} : { concurrency: published.concurrency }),
          }
        : { concurrency, "queue-delay": concurrency, scaling: concurrency, topology: concurrency },
    queueDelaysUs: args.queueDelay,
  };
}
