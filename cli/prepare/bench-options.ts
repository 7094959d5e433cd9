import { type Command, InvalidArgumentError, Option } from "commander";
import type { RequestedEndpoint } from "../../bench/measure/choose-endpoints.ts";
import { type Slo, sloPercentiles } from "../../bench/record/slo-search.ts";
import { defaultSettings } from "../../bench/run/bench-run.ts";
import type { SloGoal } from "../../bench/slo/search-slo.ts";
import { type BenchEndpoint, benchEndpointName } from "../../contract/bench-endpoint.ts";
import { type EndpointName, endpointNames, sendsImageFiles } from "../../contract/environment.ts";
import type { LoadShape } from "../../contract/load-shape.ts";
import type { Modality } from "../../contract/model-spec.ts";
import { UserError } from "../../contract/user-error.ts";
import { type ChannelsOption, withChannels } from "../../target/load/channels.ts";
import type { AddressesSource } from "../../target/open/addresses.ts";
import type { ProtocolName } from "../../target/open/server.ts";
import { modelName } from "../model/model-option.ts";
import { modalityOption } from "../model/named-model.ts";
import {
  type Address,
  endpointAddress,
  httpAddress,
  splitAssignment,
} from "../shared/endpoint-address.ts";
import {
  listOf,
  numberFrom,
  numberUpTo,
  portOffset,
  repeated,
  wholeNumber,
} from "../shared/option-values.ts";
import { protocolOption } from "../shared/protocol-option.ts";
import { addAuthorityOption } from "../shared/trusted-authority.ts";

/** Maximum batch size of any model spec. An endpoint with a smaller maximum is not measured with larger batches. */
const maxBatchSize = 4_096;

/** Options of both `bench` and `sweep`. */
export interface BenchArguments {
  readonly target?: "simulation" | "deployed";
  readonly url?: readonly Address[];
  readonly protocol?: ProtocolName;
  readonly metricsUrl?: AddressesSource["metrics"];
  readonly precision?: "fp32" | "fp16";
  readonly window: number;
  readonly windows: number;
  readonly warmup: number;
  readonly rounds: number;
  readonly duration: number;
  readonly seed: number;
  readonly images?: string;
  readonly texts?: string;
  readonly model?: string;
  readonly modality?: Modality;
  readonly weights: string;
  readonly workers?: number;
  readonly price?: number;
  readonly portOffset: number;
  readonly synth: boolean;
  readonly output?: string;
  readonly json?: true;
  readonly report?: string;
}

/** Adds the options of {@link BenchArguments}. */
export function addBenchOptions(command: Command): Command {
  addTargetOptions(command);
  addMeasurementOptions(command);
  command.option(
    "--price <dollars>",
    "price in US dollars per hour (default: from the deployed environment)",
    numberFrom(0, 1_000_000),
  );
  return addOutputOptions(command);
}

export function addOutputOptions(command: Command): Command {
  return command
    .option("--report <folder>", "folder for the record and reports (default: bench/reports)")
    .option("--json", "print only the record on stdout")
    .option("--output <file>", "also write the record to this file");
}

function addTargetOptions(command: Command): void {
  addAuthorityOption(command)
    .addOption(
      new Option(
        "--target <target>",
        "simulation: local processes started from the synthesized file (default); deployed: deployed containers or pods",
      ).choices(["simulation", "deployed"]),
    )
    .option(
      "--url <address>",
      "measure this address instead of an environment: an embedding server of any kind (http://host:port, compared side by side if repeated), or onnx-http=http://host:port, onnx-grpc=host:port, with TLS https://host:port; repeatable",
      repeated(endpointAddress),
    )
    .addOption(protocolOption())
    .option(
      "--metrics-url <server=address>",
      "with --url: metrics address of embed, onnx or trt: onnx=http://host:port; repeatable, once per process",
      repeated(metricsAddress),
    )
    .addOption(
      new Option(
        "--precision <name>",
        "with --url: precision that the addresses compute in; the embeddings of fp16 are compared by their direction only",
      )
        .choices(["fp32", "fp16"])
        .default("fp32"),
    )
    .option(
      "--port-offset <number>",
      "offset added to every local port, if ports are in use",
      portOffset,
      0,
    )
    .option("--no-synth", "use the existing output in cdktf.out, as --target deployed always does");
}

export function addMeasurementOptions(command: Command): void {
  command
    .option(
      "--window <seconds>",
      "length of a measurement window",
      numberUpTo(600),
      defaultSettings.windowSeconds,
    )
    .option(
      "--windows <number>",
      "measured windows per round",
      wholeNumber(1, 1_000),
      defaultSettings.windows,
    )
    .option(
      "--warmup <seconds>",
      "warm-up of each load point in each round",
      numberUpTo(600),
      defaultSettings.warmupSeconds,
    )
    .option(
      "--duration <seconds>",
      "maximum duration of a load point per round, including warm-up",
      numberUpTo(86_400),
      defaultSettings.durationSeconds,
    )
    .option(
      "--seed <number>",
      "seed of random arrivals and of the order of load points",
      wholeNumber(0, 2 ** 31 - 1),
      defaultSettings.seed,
    )
    .option(
      "--images <folder>",
      "JPEG, PNG or WebP files to send, the first 64 by name (default: the samples of this project)",
    )
    .option(
      "--model <name>",
      "model of the environment to measure; with --url, of the catalogue or of environments/models (default: the first)",
      modelName,
    )
    .option(
      "--weights <weights>",
      "generated (the environment's model file, or that of model_repository), tiny, or an ONNX file; served with --target simulation, and the reference for embeddings",
      "generated",
    )
    .option(
      "--workers <number>",
      "load generator processes (default: as required by the rate, up to the number of cores)",
      wholeNumber(1, 256),
    );
}

/** Options of `bench` only. */
export interface GridArguments {
  readonly backend: readonly RequestedEndpoint[];
  readonly concurrency?: readonly number[];
  readonly batchSizes: readonly number[];
  readonly rate?: readonly number[];
  readonly arrivals: "constant" | "poisson";
  readonly slo?: Slo;
  readonly demand?: number;
  readonly channels: ChannelsOption;
}

export function addGridOptions(command: Command): Command {
  return command
    .option(
      "--rounds <number>",
      "number of times that each load point is measured; intervals require two",
      wholeNumber(1, 100),
      defaultSettings.rounds,
    )
    .addOption(modalityOption("; default: of images, unless the model has only a text tower"))
    .option(
      "--texts <file>",
      "texts to send, one per line, the first 64 (default: five texts of several scripts)",
    )
    .addOption(
      new Option(
        "--backend <names>",
        `endpoints to measure: ${Object.keys(endpointGroups).join(", ")}, or names: ${namedEndpoints.map(benchEndpointName).join(", ")}`,
      )
        .argParser(backends)
        .default(backends("all"), "all existing endpoints"),
    )
    .option(
      "--concurrency <numbers>",
      `clients, each sending its next request after the previous response (default: ${defaultConcurrency.join(",")})`,
      listOf(wholeNumber(1, 4_096)),
    )
    .addOption(
      new Option("--batch-sizes <numbers>", "images or texts per request")
        .argParser(listOf(wholeNumber(1, maxBatchSize)))
        .default(defaultBatchSizes, defaultBatchSizes.join(",")),
    )
    .option(
      "--rate <numbers>",
      "requests per second, independent of responses (open loop), instead of --concurrency",
      listOf(numberUpTo(1_000_000)),
    )
    .addOption(
      new Option("--arrivals <distribution>", "with --rate or --slo: distribution of arrival times")
        .choices(["poisson", "constant"])
        .default("poisson"),
    )
    .option(
      "--slo <percentile=duration>",
      `search the highest rate whose p50, p95 or p99 is within a duration: p99=200ms (closed loops of --concurrency, default ${sloConcurrency}, are the upper bound)`,
      sloOf,
    )
    .option(
      "--demand <number>",
      "with --slo: images or texts per second to plan replicas for",
      numberUpTo(1_000_000_000),
    )
    .addOption(
      new Option(
        "--channels <channels>",
        "connections of the clients: each (one per outstanding request), shared (one gRPC channel; HTTP keeps its pool), a number of connections, or new (one per request)",
      )
        .argParser(channels)
        .default("each" satisfies ChannelsOption),
    );
}

/** Parses a value of `--channels`. */
export function channels(text: string): ChannelsOption {
  if (text === "each" || text === "shared" || text === "new") return text;
  const count = Number(text);
  if (/^\d+$/.test(text) && count >= 1 && count <= maxConnections) return count;
  throw new InvalidArgumentError(
    `It must be each, shared, new or a number from 1 to ${maxConnections}, got '${text}'.`,
  );
}

const maxConnections = 4_096;

const defaultConcurrency = [1, 4];
const defaultBatchSizes = [1, 8];
/** Clients of the closed loop whose throughput is the first upper bound of `--slo`. */
const sloConcurrency = 16;

export function loadsOf(
  { concurrency, rate, arrivals, slo, channels: connections }: GridArguments,
  seed: number,
): readonly LoadShape[] {
  if (rate !== undefined && concurrency !== undefined) {
    throw new UserError("--rate and --concurrency are mutually exclusive");
  }
  if (rate !== undefined && slo !== undefined) {
    throw new UserError("--rate and --slo are mutually exclusive");
  }
  const defaults = slo === undefined ? defaultConcurrency : [sloConcurrency];
  const loads: readonly LoadShape[] =
    rate === undefined
      ? (concurrency ?? defaults).map((clients) => ({ kind: "closed loop", concurrency: clients }))
      : rate.map((ratePerSecond) => ({ kind: "open loop", arrivals, ratePerSecond, seed }));
  return loads.map((load) => withChannels(load, connections));
}

export function sloGoalOf(
  { slo, demand, arrivals }: GridArguments,
  seed: number,
): SloGoal | undefined {
  if (slo !== undefined) return { slo, arrivals, seed, demandPerSecond: demand };
  if (demand !== undefined) throw new UserError("--demand requires --slo");
  return undefined;
}

/** Parses `p99=200ms` or `p95=1.5s`. */
export function sloOf(text: string): Slo {
  const match = /^(p\d+)=(\d+(?:\.\d+)?)(ms|s)$/.exec(text.trim());
  const percentile = sloPercentiles.find((known) => known === match?.[1]);
  const limitMs = Number(match?.[2]) * (match?.[3] === "s" ? 1_000 : 1);
  if (percentile === undefined || !(limitMs > 0)) {
    throw new InvalidArgumentError(
      `It must be ${sloPercentiles.join(", ")} = duration in ms or s, like p99=200ms, got '${text}'.`,
    );
  }
  return { percentile, limitMs };
}

const defaultFormat = (endpoint: EndpointName): BenchEndpoint => ({
  endpoint,
  payload: sendsImageFiles(endpoint) ? "jpeg" : "fp32",
  serialization: "binary",
});

/** Groups of endpoints, of which the existing ones are measured. */
const endpointGroups: Readonly<Record<string, readonly EndpointName[]>> = {
  all: endpointNames,
  embed: ["embed-http"],
  triton: ["onnx-http", "trt-http"],
  triton_grpc: ["onnx-grpc", "trt-grpc"],
  onnx: ["onnx-http", "onnx-grpc"],
  tensorrt: ["trt-http", "trt-grpc"],
  pytorch: ["pytorch-http"],
};

const namedEndpoints: readonly BenchEndpoint[] = [
  ...endpointNames.map(defaultFormat),
  ...(["onnx-http", "onnx-grpc"] as const).flatMap((endpoint) =>
    (["uint8", "jpeg"] as const).map(
      (payload): BenchEndpoint => ({ endpoint, payload, serialization: "binary" }),
    ),
  ),
  // with DALI in Triton
  ...(["trt-http", "trt-grpc"] as const).map(
    (endpoint): BenchEndpoint => ({ endpoint, payload: "jpeg", serialization: "binary" }),
  ),
  ...(["onnx-http", "trt-http"] as const).map(
    (endpoint): BenchEndpoint => ({ endpoint, payload: "fp32", serialization: "json" }),
  ),
];

/** Endpoints in the payload format of texts. */
export function textEndpoints(
  requested: readonly RequestedEndpoint[],
): readonly RequestedEndpoint[] {
  return requested.map((endpoint) => {
    const name = benchEndpointName(endpoint);
    if (name === endpoint.endpoint) return { ...endpoint, payload: "text" };
    throw new UserError(`--backend ${name} requires --modality image`);
  });
}

/** Parses a list of groups and names to distinct endpoints. */
export function backends(text: string): readonly RequestedEndpoint[] {
  const requestedEndpoints = new Map<string, RequestedEndpoint>();
  for (const word of text.split(",").map((part) => part.trim())) {
    const endpoint = namedEndpoints.find((named) => benchEndpointName(named) === word);
    const requested =
      endpoint === undefined
        ? (endpointGroups[word] ?? []).map((name) => ({ ...defaultFormat(name), byName: false }))
        : [{ ...endpoint, byName: true }];
    if (requested.length === 0) {
      const known = [...Object.keys(endpointGroups), ...namedEndpoints.map(benchEndpointName)];
      throw new InvalidArgumentError(`It must be a list of ${known.join(", ")}, got '${word}'.`);
    }
    for (const choice of requested) {
      const name = benchEndpointName(choice);
      const byName = choice.byName || requestedEndpoints.get(name)?.byName === true;
      requestedEndpoints.set(name, { ...choice, byName });
    }
  }
  return [...requestedEndpoints.values()];
}

function metricsAddress(text: string): AddressesSource["metrics"][number] {
  const [name, url = ""] = splitAssignment(text);
  const backend = (["embed", "onnx", "trt"] as const).find((known) => known === name);
  if (backend === undefined) {
    throw new InvalidArgumentError("It must be SERVER=ADDRESS, with a server of embed, onnx, trt.");
  }
  return { backend, url: httpAddress(url.replace(/\/metrics\/?$/, ""), backend) };
}
