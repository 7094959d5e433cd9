import { type Command, InvalidArgumentError, Option } from "commander";
import {
  type BenchEndpoint,
  benchEndpointName,
  type LoadShape,
} from "../../bench/record/bench-record.ts";
import { defaultSettings } from "../../bench/run/bench-run.ts";
import type { RequestedEndpoint } from "../../bench/run/choose-endpoints.ts";
import type { AddressesSource } from "../../bench/run/endpoint-targets.ts";
import { maxImagesPerRequest } from "../../contract/embed-api.ts";
import { type EndpointName, endpointNames } from "../../contract/environment.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  listOf,
  numberFrom,
  numberUpTo,
  percentage,
  portOffset,
  repeated,
  wholeNumber,
} from "../option-values.ts";

/** What `bench` and `sweep` both take. */
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
  readonly model: string;
  readonly workers?: number;
  readonly price?: number;
  readonly portOffset: number;
  readonly synth: boolean;
  readonly output?: string;
  readonly json?: true;
  readonly report?: string;
}

/** The options of {@link BenchArguments}. */
export function addBenchOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        "--target <target>",
        "simulation: local processes started from the synthesized file (default); deployed: the containers or pods that a deploy made",
      ).choices(["simulation", "deployed"]),
    )
    .option(
      "--url <path=address>",
      "measure this address, not an environment: onnx-http=http://host:port, onnx-grpc=host:port; repeatable",
      repeated(endpoint),
    )
    .option(
      "--metrics-url <server=address>",
      "with --url: metrics of embed, onnx or trt, like onnx=http://host:port; repeatable, once for each process",
      repeated(metricsPage),
    )
    .option(
      "--window <seconds>",
      "length of a measurement window",
      numberUpTo(600),
      defaultSettings.windowSeconds,
    )
    .addOption(
      new Option(
        "--stability <percent>",
        "how near throughput and p99 of the last three windows must be to their mean",
      )
        .argParser(percentage(0.01, 100))
        .default(defaultSettings.tolerance, `${100 * defaultSettings.tolerance}%`),
    )
    .option(
      "--max-trials <number>",
      "windows after which a load that never agreed is unstable",
      wholeNumber(3, 1_000),
      defaultSettings.maxWindows,
    )
    .option(
      "--duration <seconds>",
      "ceiling of one load, its warm-up included",
      numberUpTo(86_400),
      defaultSettings.durationSeconds,
    )
    .option(
      "--seed <number>",
      "of random arrivals: the same seed gives the same times",
      wholeNumber(0, 2 ** 31 - 1),
      defaultSettings.seed,
    )
    .option(
      "--images <folder>",
      "JPEG, PNG or WebP files to send, the first 64 by name (default: the samples of this project)",
    )
    .option(
      "--model <model>",
      "generated (the environment's own file, or that of model_repository), tiny, or an ONNX file: what is served with --target simulation, and the reference for the embeddings",
      "generated",
    )
    .option(
      "--workers <number>",
      "processes that send (default: as many as the rate needs, up to the cores)",
      wholeNumber(1, 256),
    )
    .option(
      "--price <dollars>",
      "US dollars per hour of what is measured (default: what a deployed environment says)",
      numberFrom(0, 1_000_000),
    )
    .option(
      "--port-offset <number>",
      "added to every local port, where ports are taken",
      portOffset,
      0,
    )
    .option("--no-synth", "use the existing output in cdktf.out, as --target deployed always does")
    .option("--report <folder>", "where the record and the reports go (default: bench/reports)")
    .option("--json", "print the record, and nothing else, on stdout")
    .option("--output <file>", "write the record to a file as well");
}

/** What only `bench` takes. */
export interface GridArguments {
  readonly backend: readonly RequestedEndpoint[];
  readonly concurrency?: readonly number[];
  readonly batchSizes: readonly number[];
  readonly rate?: readonly number[];
  readonly arrivals: "constant" | "poisson";
}

export function addGridOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        "--backend <names>",
        `what to measure: ${Object.keys(backendWords).join(", ")}, or endpoints by name: ${namedEndpoints.map(benchEndpointName).join(", ")}`,
      )
        .argParser(backends)
        .default(backends("all"), "all that there are of the five endpoints"),
    )
    .option(
      "--concurrency <numbers>",
      `clients, each sending its next request when the last one was answered (default: ${defaultConcurrency.join(",")})`,
      listOf(wholeNumber(1, 4_096)),
    )
    .addOption(
      new Option("--batch-sizes <numbers>", "images in a request")
        .argParser(listOf(wholeNumber(1, maxImagesPerRequest)))
        .default(defaultBatchSizes, defaultBatchSizes.join(",")),
    )
    .option(
      "--rate <numbers>",
      "requests per second, sent whether or not earlier ones were answered, in place of --concurrency",
      listOf(numberUpTo(1_000_000)),
    )
    .addOption(
      new Option("--arrivals <how>", "with --rate: how the requests are spread over time")
        .choices(["poisson", "constant"])
        .default("poisson"),
    );
}

const defaultConcurrency = [1, 4];
const defaultBatchSizes = [1, 8];

/** The loads of a grid. */
export function loadsOf(
  { concurrency, rate, arrivals }: GridArguments,
  seed: number,
): readonly LoadShape[] {
  if (rate !== undefined && concurrency !== undefined) {
    throw new UserError("--rate and --concurrency: give one of them, not both");
  }
  return rate === undefined
    ? (concurrency ?? defaultConcurrency).map((clients) => ({
        kind: "closed loop",
        concurrency: clients,
      }))
    : rate.map((ratePerSecond) => ({ kind: "open loop", arrivals, ratePerSecond, seed }));
}

/** Endpoint with its default payload format. */
const usual = (endpoint: EndpointName): BenchEndpoint => ({
  endpoint,
  payload: endpoint === "embed-http" ? "jpeg" : "fp32",
  serialization: "binary",
});

/** Names for groups of endpoints; those that the environment offers are measured. */
const backendWords: Readonly<Record<string, readonly EndpointName[]>> = {
  all: endpointNames,
  embed: ["embed-http"],
  triton: ["onnx-http", "trt-http"],
  triton_grpc: ["onnx-grpc", "trt-grpc"],
  onnx: ["onnx-http", "onnx-grpc"],
  tensorrt: ["trt-http", "trt-grpc"],
};

/** Every endpoint that has a name. */
const namedEndpoints: readonly BenchEndpoint[] = [
  ...endpointNames.map(usual),
  ...(["onnx-http", "onnx-grpc"] as const).flatMap((endpoint) =>
    (["uint8", "jpeg"] as const).map(
      (payload): BenchEndpoint => ({ endpoint, payload, serialization: "binary" }),
    ),
  ),
  ...(["onnx-http", "trt-http"] as const).map(
    (endpoint): BenchEndpoint => ({ endpoint, payload: "fp32", serialization: "json" }),
  ),
];

/** A list of words and names, each endpoint once. */
export function backends(text: string): readonly RequestedEndpoint[] {
  const found = new Map<string, RequestedEndpoint>();
  for (const word of text.split(",").map((it) => it.trim())) {
    const endpoint = namedEndpoints.find((it) => benchEndpointName(it) === word);
    const asked =
      endpoint === undefined
        ? (backendWords[word] ?? []).map((it) => ({ ...usual(it), byName: false }))
        : [{ ...endpoint, byName: true }];
    if (asked.length === 0) {
      const known = [...Object.keys(backendWords), ...namedEndpoints.map(benchEndpointName)];
      throw new InvalidArgumentError(`It must be of ${known.join(", ")}, got '${word}'.`);
    }
    for (const one of asked) {
      const name = benchEndpointName(one);
      found.set(name, { ...one, byName: one.byName || found.get(name)?.byName === true });
    }
  }
  return [...found.values()];
}

function endpoint(text: string): AddressesSource["endpoints"][number] {
  const [name = "", url = ""] = divided(text);
  const endpoint = endpointNames.find((it) => it === name);
  if (endpoint === undefined) {
    throw new InvalidArgumentError(
      `It must be PATH=ADDRESS, with a PATH of ${endpointNames.join(", ")}.`,
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

function metricsPage(text: string): AddressesSource["metrics"][number] {
  const [name, url = ""] = divided(text);
  const backend = (["embed", "onnx", "trt"] as const).find((it) => it === name);
  if (backend === undefined) {
    throw new InvalidArgumentError("It must be SERVER=ADDRESS, with a SERVER of embed, onnx, trt.");
  }
  return { backend, url: httpAddress(url.replace(/\/metrics\/?$/, ""), backend) };
}

function divided(text: string): readonly string[] {
  const at = text.indexOf("=");
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function httpAddress(text: string, of: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "http:" || url.pathname + url.search + url.hash !== "/") {
    throw new InvalidArgumentError(
      `The address of ${of} must be http://host:port, without a path, got '${text}'.`,
    );
  }
  return url.origin;
}
