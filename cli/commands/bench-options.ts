import { type Command, InvalidArgumentError, Option } from "commander";
import { type BenchEndpoint, benchEndpointName } from "../../bench/record/bench-endpoint.ts";
import type { LoadShape } from "../../bench/record/bench-record.ts";
import { defaultSettings } from "../../bench/run/bench-run.ts";
import type { RequestedEndpoint } from "../../bench/run/choose-endpoints.ts";
import type { AddressesSource } from "../../bench/run/endpoint-targets.ts";
import { maxImagesPerRequest } from "../../contract/embed-api.ts";
import { type EndpointName, endpointNames } from "../../contract/environment.ts";
import type { Modality } from "../../contract/model-spec.ts";
import { UserError } from "../../contract/user-error.ts";
import { modelName } from "../model/model-option.ts";
import { modalityOption } from "../model/named-model.ts";
import {
  listOf,
  numberFrom,
  numberUpTo,
  percentage,
  portOffset,
  repeated,
  wholeNumber,
} from "../option-values.ts";

/** Options of both `bench` and `sweep`. */
export interface BenchArguments {
  readonly target?: "simulation" | "deployed";
  readonly url?: AddressesSource["endpoints"];
  readonly metricsUrl?: AddressesSource["metrics"];
  readonly window: number;
  readonly stability: number;
  readonly maxTrials: number;
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
  return command
    .option(
      "--price <dollars>",
      "price in US dollars per hour (default: from the deployed environment)",
      numberFrom(0, 1_000_000),
    )
    .option("--report <folder>", "folder for the record and reports (default: bench/reports)")
    .option("--json", "print only the record on stdout")
    .option("--output <file>", "also write the record to this file");
}

function addTargetOptions(command: Command): void {
  command
    .addOption(
      new Option(
        "--target <target>",
        "simulation: local processes started from the synthesized file (default); deployed: deployed containers or pods",
      ).choices(["simulation", "deployed"]),
    )
    .option(
      "--url <endpoint=address>",
      "measure this address instead of an environment: onnx-http=http://host:port, onnx-grpc=host:port; repeatable",
      repeated(endpointAddress),
    )
    .option(
      "--metrics-url <server=address>",
      "with --url: metrics address of embed, onnx or trt: onnx=http://host:port; repeatable, once per process",
      repeated(metricsAddress),
    )
    .option(
      "--port-offset <number>",
      "offset added to every local port, if ports are in use",
      portOffset,
      0,
    )
    .option("--no-synth", "use the existing output in cdktf.out, as --target deployed always does");
}

function addMeasurementOptions(command: Command): void {
  command
    .option(
      "--window <seconds>",
      "length of a measurement window",
      numberUpTo(600),
      defaultSettings.windowSeconds,
    )
    .addOption(
      new Option(
        "--stability <percent>",
        "maximum deviation of throughput and p99 of the last three windows from their mean",
      )
        .argParser(percentage(0.01, 100))
        .default(defaultSettings.tolerance, `${100 * defaultSettings.tolerance}%`),
    )
    .option(
      "--max-trials <number>",
      "maximum number of windows, after which a load point is unstable",
      wholeNumber(3, 1_000),
      defaultSettings.maxWindows,
    )
    .option(
      "--duration <seconds>",
      "maximum duration of a load point, including warm-up",
      numberUpTo(86_400),
      defaultSettings.durationSeconds,
    )
    .option(
      "--seed <number>",
      "seed of random arrivals",
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
}

export function addGridOptions(command: Command): Command {
  return command
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
        .argParser(listOf(wholeNumber(1, maxImagesPerRequest)))
        .default(defaultBatchSizes, defaultBatchSizes.join(",")),
    )
    .option(
      "--rate <numbers>",
      "requests per second, independent of responses (open loop), instead of --concurrency",
      listOf(numberUpTo(1_000_000)),
    )
    .addOption(
      new Option("--arrivals <distribution>", "with --rate: distribution of arrival times")
        .choices(["poisson", "constant"])
        .default("poisson"),
    );
}

const defaultConcurrency = [1, 4];
const defaultBatchSizes = [1, 8];

/** @throws {UserError} if both `--rate` and `--concurrency` are given */
export function loadsOf(
  { concurrency, rate, arrivals }: GridArguments,
  seed: number,
): readonly LoadShape[] {
  if (rate !== undefined && concurrency !== undefined) {
    throw new UserError("--rate and --concurrency are mutually exclusive");
  }
  return rate === undefined
    ? (concurrency ?? defaultConcurrency).map((clients) => ({
        kind: "closed loop",
        concurrency: clients,
      }))
    : rate.map((ratePerSecond) => ({ kind: "open loop", arrivals, ratePerSecond, seed }));
}

const defaultFormat = (endpoint: EndpointName): BenchEndpoint => ({
  endpoint,
  payload: endpoint === "embed-http" ? "jpeg" : "fp32",
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

/**
 * Endpoints in the payload format of texts.
 *
 * @throws {UserError} if another format was requested by name
 */
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

function endpointAddress(text: string): AddressesSource["endpoints"][number] {
  const [name = "", url = ""] = splitAssignment(text);
  const endpoint = endpointNames.find((known) => known === name);
  if (endpoint === undefined) {
    throw new InvalidArgumentError(
      `It must be ENDPOINT=ADDRESS, with an endpoint of ${endpointNames.join(", ")}.`,
    );
  }
  if (endpoint.endsWith("-grpc")) {
    if (!/^[^\s/]+:\d{1,5}$/.test(url)) {
      throw new InvalidArgumentError(`The address of ${endpoint} must be host:port, got '${url}'.`);
    }
    return { endpoint, url };
  }
  return { endpoint, url: httpAddress(url, endpoint) };
}

function metricsAddress(text: string): AddressesSource["metrics"][number] {
  const [name, url = ""] = splitAssignment(text);
  const backend = (["embed", "onnx", "trt"] as const).find((known) => known === name);
  if (backend === undefined) {
    throw new InvalidArgumentError("It must be SERVER=ADDRESS, with a server of embed, onnx, trt.");
  }
  return { backend, url: httpAddress(url.replace(/\/metrics\/?$/, ""), backend) };
}

function splitAssignment(text: string): readonly string[] {
  const at = text.indexOf("=");
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function httpAddress(text: string, target: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "http:" || url.pathname + url.search + url.hash !== "/") {
    throw new InvalidArgumentError(
      `The address of ${target} must be http://host:port, without a path, got '${text}'.`,
    );
  }
  return url.origin;
}
