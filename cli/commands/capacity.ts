import { type Command, Option } from "commander";
import { calibrateRecord } from "../../bench/capacity/calibrate-record.ts";
import {
  answerText,
  checkText,
  notesOf,
  parametersText,
  planText,
  recordCheckText,
  type Trust,
} from "../../bench/capacity/capacity-text.ts";
import { checkPublished, summarize } from "../../bench/capacity/check-published.ts";
import { topologies } from "../../bench/capacity/model.ts";
import { parameterList } from "../../bench/capacity/parameter-list.ts";
import { planJob } from "../../bench/capacity/plan.ts";
import { type PublishedFacts, publishedFacts } from "../../bench/capacity/published-facts.ts";
import {
  alternatives,
  payloadNames,
  predictScenario,
  type Scenario,
  type ServiceTimes,
} from "../../bench/capacity/scenario.ts";
import type { BenchRecord } from "../../bench/record/bench-record.ts";
import { gpuNames } from "../../contract/gpus.ts";
import { UserError } from "../../contract/user-error.ts";
import { numberFrom, numberUpTo, wholeNumber } from "../option-values.ts";
import { writeOutput } from "../write-output.ts";
import {
  type CalibratedRecord,
  type CapacityArguments,
  catalogueDevice,
  cataloguePeaks,
  deviceOf,
  hardwareFromOptions,
  hardwareOfEnvironment,
  type RequestedHardware,
  readRecord,
  scenarioBase,
  serviceTimesOf,
  withBackend,
} from "./capacity-inputs.ts";
import { bandwidth, hours, milliseconds } from "./capacity-options.ts";

/** `clipstack capacity`: what will it give, what will it cost, and what bounds it? */
export function registerCapacity(program: Command): void {
  program
    .command("capacity")
    .argument(
      "[environment]",
      "take GPU, their number, topology and backend from what is synthesized",
    )
    .addOption(new Option("--gpu <name>", "key of the GPU catalogue").choices(gpuNames))
    .option("--gpus <number>", "how many GPUs (default: 1)", wholeNumber(1, 64))
    .addOption(
      new Option(
        "--topology <name>",
        "one Triton over all GPUs, or one for each (default: instance-group)",
      ).choices(topologies),
    )
    .addOption(
      new Option(
        "--backend <name>",
        "what computes (default: tensorrt; with --record, what it was measured with)",
      ).choices(["onnxruntime", "tensorrt"]),
    )
    .addOption(
      new Option(
        "--payload <name>",
        "what a client sends: jpeg to the embed API; u8, float32 or json tensors to Triton (default: jpeg)",
      ).choices(payloadNames),
    )
    .option("--jpeg-kb <size>", "size of a JPEG in kB", numberUpTo(1e12), 10)
    .addOption(
      new Option("--bandwidth <rate>", "of the client's link: 100Mbps, 2.5Gbps")
        .argParser(bandwidth)
        .default(1000, "1Gbps"),
    )
    .addOption(
      new Option("--round-trip <time>", "between client and server: 60ms")
        .argParser(milliseconds)
        .default(1, "1ms"),
    )
    .addOption(
      new Option(
        "--connections <kind>",
        "new: one for each request, as in the published figures; kept: they stay open",
      )
        .choices(["new", "kept"])
        .default("new"),
    )
    .option(
      "--concurrency <number>",
      "clients, each with one request on its way (default: 16; of a job, the best)",
      wholeNumber(1, 4096),
    )
    .option("--batch-size <number>", "images per request", wholeNumber(1, 32), 1)
    .option("--images <number>", "a job: this many images", wholeNumber(1, 1e12))
    .option("--within <time>", "the job's time: 6h, 90min", hours)
    .option(
      "--price <dollars>",
      "an hour, for one GPU (default: the catalogue's)",
      numberUpTo(1e12),
    )
    .option(
      "--decode-ms <ms>",
      "time of one core to decode an image (default: as clipstack's server, by --jpeg-kb)",
      numberUpTo(1e12),
    )
    .option(
      "--decode-workers <number>",
      "images decoded at a time (default: 4)",
      wholeNumber(1, 1024),
    )
    .option(
      "--ingest-ms <ms>",
      "time of one Triton to take in one float32 tensor",
      numberUpTo(1e12),
    )
    .option("--client-ms <ms>", "client's own work between two requests", numberFrom(0, 1e12), 0)
    .option("--record <file>", "calibrate by a record of bench or sweep, not by published figures")
    .option(
      "--environment <name>",
      "which environment of --record, where it was measured in several",
    )
    .option("--check", "compare the model with every published figure, or every load of --record")
    .option("--parameters", "list the model's parameters with their values and origins")
    .option("--json", "print the result, and nothing else, as JSON")
    .option("--output <file>", "write the result to a file as well, as JSON")
    .addHelpText(
      "after",
      `
A closed network of queues: the client's work, its link, round trips, decoding, the batcher, ingesting tensors, the GPU.
Its parameters are from published figures (bench/published) or from a record; docs/capacity.md says what each means and
how far the model is off. It needs no GPU and measures nothing.

Examples:
  $ npx clipstack capacity --gpu rtx-4080 --gpus 4 --topology per-gpu --payload jpeg --bandwidth 100Mbps --round-trip 60ms --concurrency 32
  $ npx clipstack capacity multi-gpu-4x --payload fp32 --bandwidth 10Gbps --round-trip 0.2ms --connections kept --concurrency 64
  $ npx clipstack capacity --images 1000000 --within 6h --bandwidth 200Mbps --round-trip 35ms
  $ npx clipstack capacity --check
  $ npx clipstack capacity --record bench/reports/….json --check

Exit codes: 0 good, 1 no way does the job, or the model no longer gives the figures back, 2 wrong usage or settings.`,
    )
    .action(capacity);
}

/** What is printed, for people and for programs. */
interface Said {
  readonly text: string;
  readonly json: unknown;
  readonly exitCode: 0 | 1;
}

function capacity(environment: string | undefined, args: CapacityArguments): void {
  const said = say(environment, args);
  const json = `${JSON.stringify({ schema: 1, ...(said.json as object) }, null, 2)}\n`;
  if (args.output !== undefined) writeOutput(args.output, json);
  if (args.json) process.stdout.write(json);
  else console.log(said.text);
  process.exitCode = said.exitCode;
}

function say(environment: string | undefined, args: CapacityArguments): Said {
  const facts = publishedFacts(cataloguePeaks);
  if (args.parameters) {
    const parameters = parameterList(facts.published, facts.parameters);
    return { text: parametersText(parameters), json: { parameters }, exitCode: 0 };
  }
  const record = readRecord(args);
  const measured = record && { record, calibration: calibrateRecord(record) };
  if (args.check) return measured === undefined ? sayCheck(facts) : sayRecordCheck(measured);
  if ((args.images === undefined) !== (args.within === undefined)) {
    throw new UserError("--images and --within make a job together: give both");
  }
  const found = environment === undefined ? {} : hardwareOfEnvironment(environment);
  const asked = withBackend({ ...found, ...hardwareFromOptions(args) }, args, measured);
  const { times, from } = serviceTimesOf(facts, measured, asked, args);
  return args.images !== undefined && args.within !== undefined
    ? sayPlan({ images: args.images, withinHours: args.within }, asked, args, times, from, record)
    : sayAnswer(asked, args, times, from, record);
}

function sayAnswer(
  asked: RequestedHardware,
  args: CapacityArguments,
  times: ServiceTimes,
  from: readonly string[],
  record: BenchRecord | undefined,
): Said {
  const question: Scenario = {
    ...scenarioBase(asked, args),
    device: deviceOf(asked, record),
    gpus: asked.gpus ?? 1,
    topology: asked.topology ?? "instance-group",
    payload: args.payload ?? "jpeg",
    concurrency: args.concurrency ?? 16,
  };
  const found = predictScenario(question, times);
  const others = alternatives(question, times);
  const trust: Trust = { from, notes: notesOf(question, times, found.bottleneck) };
  return {
    text: answerText(question, found, others, trust),
    json: { question, answer: found, alternatives: others, trust },
    exitCode: 0,
  };
}

function sayPlan(
  job: { readonly images: number; readonly withinHours: number },
  asked: RequestedHardware,
  args: CapacityArguments,
  times: ServiceTimes,
  from: readonly string[],
  record: BenchRecord | undefined,
): Said {
  const devices =
    asked.gpu === undefined && record === undefined
      ? gpuNames.map((name) => catalogueDevice(name, asked.price))
      : [deviceOf(asked, record)];
  const cpuOnly = devices.every(({ cpu }) => cpu);
  const plan = planJob(
    job,
    scenarioBase(asked, args),
    {
      devices,
      gpus: asked.gpus === undefined ? (cpuOnly ? [1] : [1, 2, 4, 8]) : [asked.gpus],
      topologies: asked.topology === undefined ? topologies : [asked.topology],
      // JSON is never the better way
      payloads: args.payload === undefined ? ["jpeg", "uint8", "fp32"] : [args.payload],
      concurrencies:
        args.concurrency === undefined ? [1, 2, 4, 8, 16, 32, 64, 128] : [args.concurrency],
    },
    times,
  );
  const [best] = plan.options;
  const notes = [
    ...(best?.usd === undefined
      ? []
      : [
          "Dollars for the hours that it runs; prices of the catalogue are of different sources and months.",
        ]),
    ...(best === undefined ? [] : notesOf(best.question, times, best.bottleneck)),
  ];
  const trust: Trust = { from, notes };
  return {
    text: planText(job, plan, 10, trust),
    json: { job, ...plan, trust },
    exitCode: best?.meets === true ? 0 : 1,
  };
}

function sayCheck({ published, parameters, peaks }: PublishedFacts): Said {
  const rows = checkPublished(published, parameters, peaks);
  const summary = summarize(rows);
  return {
    text: checkText(rows, summary),
    json: { figures: rows, summary },
    exitCode: summary.broken.length === 0 ? 0 : 1,
  };
}

function sayRecordCheck({ calibration }: CalibratedRecord): Said {
  return { text: recordCheckText(calibration), json: calibration, exitCode: 0 };
}
