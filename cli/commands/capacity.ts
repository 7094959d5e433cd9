import { type Command, InvalidArgumentError, Option } from "commander";
import { readEnvironment } from "../../artefact/artefact.ts";
import {
  calibrateRecord,
  type RecordCalibration,
  recordBackends,
  timesOfRecord,
} from "../../bench/capacity/calibrate-record.ts";
import {
  answerText,
  backendNames,
  checkText,
  notesOf,
  parametersText,
  planText,
  recordCheckText,
  recordErrorLines,
  summaryLine,
  type Trust,
} from "../../bench/capacity/capacity-text.ts";
import { checkPublished, summarize } from "../../bench/capacity/check-published.ts";
import { type Topology, topologies } from "../../bench/capacity/model.ts";
import { planJob } from "../../bench/capacity/plan.ts";
import {
  type PublishedFacts,
  publishedFacts,
  publishedTimes,
} from "../../bench/capacity/published-facts.ts";
import type { Backend } from "../../bench/capacity/published-parameters.ts";
import {
  alternatives,
  answer,
  type Device,
  type Payload,
  payloadNames,
  type Question,
  type ServiceTimes,
} from "../../bench/capacity/question.ts";
import { type BenchRecord, readBenchRecord } from "../../bench/record/bench-record.ts";
import { type GpuName, gpuCatalogue, gpuNames } from "../../contract/gpus.ts";
import { UserError } from "../../contract/user-error.ts";
import { environmentFile } from "../artefact.ts";
import { numberFrom, numberUpTo, wholeNumber } from "../option-values.ts";
import { writeOutput } from "../write-output.ts";

interface CapacityArguments {
  readonly gpu?: GpuName;
  readonly gpus?: number;
  readonly topology?: Topology;
  readonly backend?: Backend;
  readonly payload?: Payload;
  readonly jpegKb: number;
  readonly bandwidth: number;
  readonly roundTrip: number;
  readonly connections: "new" | "kept";
  readonly concurrency?: number;
  readonly batchSize: number;
  readonly images?: number;
  readonly within?: number;
  readonly price?: number;
  readonly decodeMs?: number;
  readonly decodeWorkers?: number;
  readonly ingestMs?: number;
  readonly clientMs: number;
  readonly record?: string;
  readonly environment?: string;
  readonly check?: true;
  readonly parameters?: true;
  readonly json?: true;
  readonly output?: string;
}

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
    .option("--batch-size <number>", "images a request", wholeNumber(1, 32), 1)
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
A closed network of queues: the client's work, its link, round trips, decoding, the batcher, taking in tensors, the GPU.
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

const cataloguePeaks = Object.fromEntries(
  Object.entries(gpuCatalogue).map(([name, { fp16DenseTflops }]) => [name, fp16DenseTflops]),
);

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
    const { list } = facts.parameters;
    return { text: parametersText(list), json: { parameters: list }, exitCode: 0 };
  }
  const record = readRecord(args);
  const measured = record && { record, calibration: calibrateRecord(record) };
  if (args.check) return measured === undefined ? sayCheck(facts) : sayRecordCheck(measured);
  if ((args.images === undefined) !== (args.within === undefined)) {
    throw new UserError("--images and --within make a job together: give both");
  }
  const found = environment === undefined ? {} : ofEnvironment(environment);
  const asked = withEngine({ ...found, ...given(args) }, args, measured);
  const { times, from } = source(facts, measured, asked, args);
  return args.images !== undefined && args.within !== undefined
    ? sayPlan({ images: args.images, withinHours: args.within }, asked, args, times, from, record)
    : sayAnswer(asked, args, times, from, record);
}

/** What an environment or the options say of the hardware. */
interface Asked {
  readonly gpu?: GpuName;
  readonly gpus?: number;
  readonly topology?: Topology;
  readonly backend?: Backend;
  /** Dollars an hour for one GPU. */
  readonly price?: { readonly usdPerHour: number; readonly date?: string };
}

function given({ gpu, gpus, topology, backend, price }: CapacityArguments): Asked {
  const all: Asked = {
    gpu,
    gpus,
    topology,
    backend,
    price: price === undefined ? undefined : { usdPerHour: price },
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

function ofEnvironment(name: string): Asked {
  const { file, shown } = environmentFile(name);
  const { gpu, namespace, services } = readEnvironment(file, shown);
  if (gpu === undefined) {
    throw new UserError(`${name} has no GPU: name one with --gpu, or calibrate with --record`);
  }
  const tritons = services.filter(({ kind }) => kind === "triton");
  const backends = new Set(tritons.map(({ backend }) => backend));
  const gpuName = gpuNames.find((known) => known === gpu.name);
  if (gpuName === undefined) {
    throw new UserError(`${name}: gpu must be one of ${gpuNames.join(", ")}, got '${gpu.name}'`);
  }
  // pods have a Triton each
  const inCluster = namespace !== undefined;
  const perGpu =
    gpu.count > 1 && (inCluster || tritons.filter(({ name }) => /-\d+$/.test(name)).length > 1);
  return {
    gpu: gpuName,
    gpus: gpu.count,
    topology: perGpu ? "per-gpu" : "instance-group",
    backend: backends.has("tensorrt") || backends.size === 0 ? "tensorrt" : "onnxruntime",
    price: { usdPerHour: gpu.usdPerHour / gpu.count, date: gpu.priceDate },
  };
}

/** Name of what a record was measured on. */
function recordDevice(record: BenchRecord): string {
  const { gpu, machine } = record.subject;
  return gpu?.name ?? machine.cpu;
}

function source(
  facts: PublishedFacts,
  measured: Measured | undefined,
  asked: Asked,
  args: CapacityArguments,
): { readonly times: ServiceTimes; readonly from: readonly string[] } {
  const published = publishedTimes(facts, args.jpegKb * 1000);
  const { decodeMs, decodeWorkers, ingestMs } = args;
  const own = Object.fromEntries(
    Object.entries({
      decodeMsPerImage: decodeMs,
      decodeWorkers,
      ingestMsPerImage: ingestMs,
    }).filter(([, value]) => value !== undefined),
  );
  if (measured === undefined) {
    const rows = checkPublished(facts.published, facts.parameters, facts.peaks);
    const from = `Calibrated by published figures. ${summaryLine(summarize(rows))} (--check)`;
    return { times: { ...published, ...own }, from: [from] };
  }
  const { record, calibration } = measured;
  const times = timesOfRecord(record, calibration, recordDevice(record), published);
  const weights = record.subject.model.weights === "random" ? ", random weights" : "";
  const where = record.subject.target === "simulation" ? "local processes, " : "";
  const compute =
    asked.gpu === undefined || asked.gpu === recordDevice(record)
      ? ""
      : " The compute of another GPU is that of published figures.";
  const from = `Calibrated by ${args.record} (${where}${recordDevice(record)}, model ${record.subject.model.name}${weights}).${compute}`;
  const embed =
    ingestMs === undefined ? times.embed : { ...times.embed, ingestMsPerImage: ingestMs };
  return {
    times: { ...times, ...own, embed },
    from: [from, ...recordErrorLines(calibration), ...calibration.notes],
  };
}

/** A record, and what it says of the model's times. */
interface Measured {
  readonly record: BenchRecord;
  readonly calibration: RecordCalibration;
}

/** The record, or of several environments the one that is asked for. */
function readRecord({
  record: file,
  environment,
  check,
}: CapacityArguments): BenchRecord | undefined {
  if (file === undefined) {
    if (environment === undefined) return undefined;
    throw new UserError("--environment is one of --record: give that too");
  }
  const record = readBenchRecord(file);
  const names = [...new Set(record.loadPoints.map((point) => point.environment))];
  if (environment === undefined) {
    if (names.length < 2 || check) return record;
    throw new UserError(
      `${file}: was measured in several environments, ${names.join(", ")}: name one with --environment`,
    );
  }
  if (!names.includes(environment)) {
    throw new UserError(
      `${file}: --environment must be ${names.join(" or ")}, got '${environment}'`,
    );
  }
  return {
    ...record,
    loadPoints: record.loadPoints.filter((point) => point.environment === environment),
  };
}

/** What computes, where nobody says: what the record was measured with. One that it lacks is refused. */
function withEngine(asked: Asked, args: CapacityArguments, measured: Measured | undefined): Asked {
  if (measured === undefined) return asked;
  const { record, calibration } = measured;
  if (calibration.endpoints.length === 0) {
    throw new UserError(
      `${args.record}: no path has a valid load with one client, which would calibrate the model`,
    );
  }
  const ofRecord = asked.gpu === undefined || asked.gpu === recordDevice(record);
  if (asked.gpu === undefined && record.subject.gpu === undefined && (asked.gpus ?? 1) > 1) {
    throw new UserError(
      `${args.record}: was measured on a CPU (${recordDevice(record)}), which says nothing of ${asked.gpus} GPUs: name one with --gpu`,
    );
  }
  // a job takes every payload that the record has
  const payload = args.payload ?? (args.images === undefined ? "jpeg" : undefined);
  const known = recordBackends(calibration, payload, asked.backend);
  const backend = asked.backend ?? known[0];
  if (!ofRecord || (backend !== undefined && known.includes(backend))) return { ...asked, backend };
  if (backend === undefined && payload !== "uint8" && payload !== "fp32" && payload !== "json") {
    throw new UserError(
      `${args.record}: does not say what computes behind the embed API: say it with --backend`,
    );
  }
  const wanted = payload === undefined ? "" : ` for --payload ${payload}`;
  const which = backend === undefined ? "" : ` of ${backendNames[backend]}`;
  const has = calibration.endpoints.map(({ endpoint }) => endpoint).join(", ");
  throw new UserError(
    `${args.record}: has no load with one client${which}${wanted}, only of ${has}`,
  );
}

function deviceOf(asked: Asked, record: BenchRecord | undefined): Device {
  if (asked.gpu !== undefined) return catalogueDevice(asked.gpu, asked.price);
  if (record === undefined) {
    throw new UserError(
      "say what computes: an environment, --gpu, or --record (--check and --parameters need none)",
    );
  }
  const { price: known, gpu } = record.subject;
  // a price of the environment's GPU is none of the CPU that ran in its place
  const price = gpu === undefined && known?.source !== "--price" ? undefined : known;
  const usdPerHour =
    asked.price?.usdPerHour ?? (price && price.usdPerHour / Math.max(1, gpu?.count ?? 1));
  return {
    name: recordDevice(record),
    usdPerHour,
    priceDate: asked.price ? undefined : price?.date,
    ...(gpu === undefined ? { cpu: true } : {}),
  };
}

function catalogueDevice(gpu: GpuName, price?: Asked["price"]): Device {
  const { usdPerHour, date } = gpuCatalogue[gpu].price;
  return price === undefined
    ? { name: gpu, usdPerHour, priceDate: date }
    : { name: gpu, usdPerHour: price.usdPerHour, priceDate: price.date };
}

function base(asked: Asked, args: CapacityArguments) {
  return {
    backend: asked.backend ?? "tensorrt",
    bandwidthMbps: args.bandwidth,
    roundTripMs: args.roundTrip,
    connections: args.connections,
    imagesPerRequest: args.batchSize,
    clientMs: args.clientMs,
    jpegBytes: args.jpegKb * 1000,
  } as const;
}

function sayAnswer(
  asked: Asked,
  args: CapacityArguments,
  times: ServiceTimes,
  from: readonly string[],
  record: BenchRecord | undefined,
): Said {
  const question: Question = {
    ...base(asked, args),
    device: deviceOf(asked, record),
    gpus: asked.gpus ?? 1,
    topology: asked.topology ?? "instance-group",
    payload: args.payload ?? "jpeg",
    concurrency: args.concurrency ?? 16,
  };
  const found = answer(question, times);
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
  asked: Asked,
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
    base(asked, args),
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

function sayRecordCheck({ calibration }: Measured): Said {
  return { text: recordCheckText(calibration), json: calibration, exitCode: 0 };
}

/** A number with one of some units, in the first unit. */
function quantity(
  units: Readonly<Record<string, number>>,
  example: string,
  least: "above 0" | "0 or more" = "above 0",
) {
  return (text: string): number => {
    const [, digits = "", unit = ""] = /^([0-9.]+)\s*([A-Za-z/]*)$/.exec(text.trim()) ?? [];
    const value = Number(digits) * (units[unit.toLowerCase()] ?? Number.NaN);
    const inRange = least === "above 0" ? value > 0 : value >= 0;
    if (digits === "" || !(inRange && Number.isFinite(value))) {
      throw new InvalidArgumentError(`must be a number ${least} with its unit, like ${example}.`);
    }
    return value;
  };
}

function bandwidth(text: string): number {
  return quantity(
    { kbps: 1e-3, "kbit/s": 1e-3, mbps: 1, "mbit/s": 1, gbps: 1000, "gbit/s": 1000 },
    "100Mbps",
  )(text);
}

function milliseconds(text: string): number {
  return quantity({ us: 1e-3, ms: 1, s: 1000 }, "60ms", "0 or more")(text);
}

function hours(text: string): number {
  return quantity({ s: 1 / 3600, min: 1 / 60, h: 1, d: 24 }, "6h or 90min")(text);
}
