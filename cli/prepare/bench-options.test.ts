import { Command } from "commander";
import { expect, test } from "vitest";
import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import {
  addBenchOptions,
  addGridOptions,
  type BenchArguments,
  backends,
  type GridArguments,
  loadsOf,
  sloGoalOf,
  sloOf,
  textEndpoints,
} from "./bench-options.ts";

/** The options of a command line, or what is wrong with them. */
function parse(...args: readonly string[]): BenchArguments & GridArguments {
  const command = addBenchOptions(addGridOptions(new Command()));
  command.exitOverride().configureOutput({ writeErr: () => {} });
  return command.parse(args, { from: "user" }).opts();
}

const names = (text: string) => backends(text).map(benchEndpointName);

test("the default is small loads on every endpoint", () => {
  const args = parse();
  expect(args.backend.map(benchEndpointName)).toEqual([
    "embed-http",
    "onnx-http",
    "onnx-grpc",
    "trt-http",
    "trt-grpc",
    "pytorch-http",
    "openai-http",
    "tei-http",
    "infinity-http",
  ]);
  expect(args.batchSizes).toEqual([1, 8]);
  expect(loadsOf(args, args.seed)).toEqual([
    { kind: "closed loop", concurrency: 1 },
    { kind: "closed loop", concurrency: 4 },
  ]);
  expect([args.rounds, args.windows, args.window, args.warmup]).toEqual([5, 4, 0.5, 0.5]);
});

test("--rounds, --warmup and --windows set the measurement of each load point", () => {
  const args = parse("--rounds", "3", "--warmup", "2", "--window", "1.5", "--windows", "6");
  expect([args.rounds, args.warmup, args.window, args.windows]).toEqual([3, 2, 1.5, 6]);
});

test("--backend accepts groups and endpoint names", () => {
  expect(names("triton_grpc,embed")).toEqual(["onnx-grpc", "trt-grpc", "embed-http"]);
  expect(names("onnx")).toEqual(["onnx-http", "onnx-grpc"]);
  expect(names("onnx-http_jpeg,onnx-grpc_uint8,onnx-http_json")).toEqual([
    "onnx-http_jpeg",
    "onnx-grpc_uint8",
    "onnx-http_json",
  ]);
});

test("a named endpoint must exist, one of a group need not", () => {
  expect(backends("triton,trt-http")).toEqual([
    { endpoint: "onnx-http", payload: "fp32", serialization: "binary", byName: false },
    { endpoint: "trt-http", payload: "fp32", serialization: "binary", byName: true },
  ]);
  expect(backends("trt-http,triton").find(({ endpoint }) => endpoint === "trt-http")?.byName).toBe(
    true,
  );
});

test("--channels is part of every load", () => {
  const args = (text: string) => parse("--concurrency", "16", "--channels", text);
  const channelsOf = (text: string) => loadsOf(args(text), 1).map((load) => load.channels);
  expect(channelsOf("each")).toEqual([undefined]);
  expect(channelsOf("shared")).toEqual(["shared"]);
  expect(channelsOf("4")).toEqual([4]);
  expect(loadsOf(parse("--rate", "5", "--channels", "new"), 1)[0]?.channels).toBe("new");
  for (const text of ["0", "all", "1.5", "4097"]) {
    expect(() => args(text)).toThrow(
      `It must be each, shared, new or a number from 1 to 4096, got '${text}'.`,
    );
  }
});

test("--rate selects open loops with the seed of the run", () => {
  const args = parse("--rate", "50,12.5", "--arrivals", "constant", "--seed", "7");
  expect(loadsOf(args, args.seed)).toEqual([
    { kind: "open loop", arrivals: "constant", ratePerSecond: 50, seed: 7 },
    { kind: "open loop", arrivals: "constant", ratePerSecond: 12.5, seed: 7 },
  ]);
});

test("fails when both a rate and a concurrency are given", () => {
  const args = parse("--rate", "50", "--concurrency", "4");
  expect(() => loadsOf(args, args.seed)).toThrow("--rate and --concurrency are mutually exclusive");
});

test("--url and --metrics-url are repeatable, and the path of a metrics URL is removed", () => {
  const args = parse(
    ...["--url", "onnx-http=http://gpu.example:40010/", "--url", "onnx-grpc=gpu.example:40011"],
    ...["--url", "embed-http=https://embed.example", "--url", "trt-grpc=https://gpu.example:9021"],
    ...["--metrics-url", "onnx=http://gpu.example:40012/metrics"],
  );
  expect(args.url).toEqual([
    { endpoint: "onnx-http", url: "http://gpu.example:40010" },
    { endpoint: "onnx-grpc", url: "gpu.example:40011" },
    { endpoint: "embed-http", url: "https://embed.example" },
    { endpoint: "trt-grpc", url: "https://gpu.example:9021" },
  ]);
  expect(args.metricsUrl).toEqual([{ backend: "onnx", url: "http://gpu.example:40012" }]);
});

const wrong: readonly (readonly [string, readonly string[], string])[] = [
  ["an endpoint that does not exist", ["--backend", "onnx-ftp"], "got 'onnx-ftp'"],
  ["an address without an endpoint", ["--url", "gpu:1"], "It must be ENDPOINT=ADDRESS"],
  [
    "a gRPC address without TLS",
    ["--url", "onnx-grpc=http://gpu:1"],
    "must be host:port, or https:",
  ],
  ["ftp", ["--url", "onnx-http=ftp://gpu:1"], "must be http://host:port or https://host:port"],
  ["an authority that is no certificate", ["--ca", "package.json"], "must be a PEM file with a"],
  ["an address with a path", ["--url", "onnx-http=http://gpu:1/x"], "without a path"],
  ["no client", ["--concurrency", "0"], "whole number from 1 to 4096"],
  [
    "a batch above the maximum of all models",
    ["--batch-sizes", "1,4097"],
    "whole number from 1 to 4096",
  ],
  ["no rate", ["--rate", "0"], "more than 0"],
  ["no round", ["--rounds", "0"], "from 1 to 100"],
  ["no windows", ["--windows", "0"], "from 1 to 1000"],
  ["a negative price", ["--price", "-1"], "a number from 0 to 1000000"],
  ["a window of nothing", ["--window", ""], "more than 0"],
];
test("accepts the precision of addresses", () => {
  expect(parse("--precision", "fp16").precision).toBe("fp16");
  expect(parse().precision).toBe("fp32");
});

test.each(wrong)("fails on %s", (_name, args, message) => {
  expect(() => parse(...args)).toThrow(message);
});

test("--model names a model; files are of --weights", () => {
  expect(parse("--model", "dinov2-small").model).toBe("dinov2-small");
  for (const file of ["tiny", "generated", "weights/mine.onnx"]) {
    expect(() => parse("--model", file)).toThrow(
      `It must be the name of a model. Model files are selected with --weights ${file}.`,
    );
  }
});

test("texts are sent to the same endpoints", () => {
  expect(textEndpoints(backends("embed,onnx")).map(benchEndpointName)).toEqual([
    "embed-http_text",
    "onnx-http_text",
    "onnx-grpc_text",
  ]);
});

test("fails on a payload format of images for texts", () => {
  expect(() => textEndpoints(backends("onnx-http_uint8"))).toThrow(
    "--backend onnx-http_uint8 requires --modality image",
  );
});

test("--slo reads a percentile and a duration in ms or s", () => {
  expect(sloOf("p99=200ms")).toEqual({ percentile: "p99", limitMs: 200 });
  expect(sloOf("p95=1.5s")).toEqual({ percentile: "p95", limitMs: 1_500 });
  for (const wrong of ["p99", "p99=200", "p90=200ms", "p99=0ms", "p99=-1ms", "200ms", "p99=2m"]) {
    expect(() => sloOf(wrong), wrong).toThrow(
      `It must be p50, p95, p99 = duration in ms or s, like p99=200ms, got '${wrong}'.`,
    );
  }
});

test("--slo measures one closed loop as the upper bound unless --concurrency selects others", () => {
  const args = parse("--slo", "p99=200ms", "--demand", "500", "--seed", "7");
  expect(loadsOf(args, args.seed)).toEqual([{ kind: "closed loop", concurrency: 16 }]);
  expect(sloGoalOf(args, args.seed)).toEqual({
    slo: { percentile: "p99", limitMs: 200 },
    arrivals: "poisson",
    seed: 7,
    demandPerSecond: 500,
  });
  const own = parse("--slo", "p50=1s", "--concurrency", "4,8");
  expect(loadsOf(own, own.seed)).toHaveLength(2);
});

test("--slo excludes --rate, and --demand requires --slo", () => {
  const both = parse("--slo", "p99=200ms", "--rate", "5");
  expect(() => loadsOf(both, 1)).toThrow("--rate and --slo are mutually exclusive");
  expect(() => sloGoalOf(parse("--demand", "5"), 1)).toThrow("--demand requires --slo");
  expect(sloGoalOf(parse(), 1)).toBeUndefined();
});
