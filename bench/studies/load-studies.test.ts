import { expect, test } from "vitest";
import type { BenchEndpoint } from "../../contract/bench-endpoint.ts";
import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import type { MeasuredEndpoint } from "../measure/choose-endpoints.ts";
import type { StudyResult } from "../record/study-result.ts";
import { defaultSettings } from "../run/bench-run.ts";
import { batchStudy } from "./batch.ts";
import { concurrencyStudy } from "./concurrency.ts";
import { hostAndPort, linkStudy } from "./link.ts";
import { protocolStudy } from "./protocol.ts";
import { measureScaling } from "./scaling.ts";
import type { StudyGrid, StudyRun } from "./study.ts";
import { measureTopology } from "./topology.ts";

const grid: StudyGrid = {
  batchSizes: [1, 4, 8],
  protocol: {
    batchSizes: [1, 4, 8],
    concurrency: [1, 2],
    channels: ["each", "shared"],
    link: { bandwidthMbps: 200, roundTripMs: 10 },
  },
  concurrency: { concurrency: [1, 16], "queue-delay": [2], scaling: [3], topology: [5] },
  queueDelaysUs: [0],
  bandwidthsMbps: [10, 100],
  roundTripsMs: [20],
};

const at = (
  endpoint: BenchEndpoint["endpoint"],
  payload: BenchEndpoint["payload"] = "fp32",
  serialization: BenchEndpoint["serialization"] = "binary",
): MeasuredEndpoint => ({
  target: {
    environment: "e",
    service: endpoint.slice(0, 4),
    endpoint,
    url: endpoint.endsWith("grpc") ? "127.0.0.1:1" : "http://127.0.0.1:1",
    model: "m",
    spec: openclipVitB32,
    modality: "image",
    payloads: ["fp32"],
    metrics: [],
    pids: [],
  },
  endpoint: { endpoint, payload, serialization },
});

/** Run that records the load points instead of measuring them: `onnx-http b4 c1`. */
function recorder(...endpoints: MeasuredEndpoint[]) {
  const loads: string[] = [];
  const kept: StudyResult[] = [];
  const options: Parameters<StudyRun["measure"]>[2][] = [];
  const run: StudyRun = {
    environment: "e",
    open: {
      target: "simulation",
      targets: endpoints.map(({ target }) => target),
      subject: { environments: [], servers: [] },
      notes: [],
    },
    context: {
      tower: { spec: openclipVitB32, modality: "image" },
      settings: {
        ...defaultSettings,
        endpoints: [],
        images: { source: "samples", count: 1, meanBytes: 1 },
      },
      items: [],
      signal: new AbortController().signal,
      onEvent: () => {},
    },
    grid,
    round: 1,
    endpoints,
    async measure(_study, { endpoint }, given) {
      const { load, batch } = given;
      const clients = load.kind === "closed loop" ? load.concurrency : 0;
      loads.push(`${benchEndpointName(endpoint)} b${batch} c${clients}`);
      options.push(given);
    },
    fail(line) {
      throw new Error(line);
    },
    addResult(result) {
      kept.push(result);
      return result;
    },
  };
  return { run, loads, kept, options };
}

test("batch increases the images per request of one client", async () => {
  const { run, loads } = recorder(at("onnx-http"));
  await batchStudy.run(run);
  expect(loads).toEqual(["onnx-http b1 c1", "onnx-http b4 c1", "onnx-http b8 c1"]);
});

test("concurrency increases the clients that send single images", async () => {
  const { run, loads } = recorder(at("embed-http", "jpeg"), at("onnx-http"));
  await concurrencyStudy.run(run);
  expect(loads).toEqual([
    "embed-http b1 c1",
    "embed-http b1 c16",
    "onnx-http b1 c1",
    "onnx-http b1 c16",
  ]);
});

test("protocol measures both protocols, and gRPC on each kind of channel, in an order that alternates", async () => {
  const { run, loads, options, kept } = recorder(
    at("embed-http", "jpeg"),
    at("onnx-http"),
    at("onnx-grpc"),
  );
  await protocolStudy.run(run);
  expect(loads.slice(0, 4)).toEqual([
    "onnx-http b1 c1",
    "onnx-grpc b1 c1",
    "onnx-grpc b4 c1",
    "onnx-http b4 c1",
  ]);
  const last = (of: typeof options) => of.map(({ load }) => load.channels);
  expect(loads.slice(-6, -3)).toEqual(["onnx-grpc b8 c2", "onnx-grpc b8 c2", "onnx-http b8 c2"]);
  expect(last(options.slice(-6, -3))).toEqual(["shared", undefined, undefined]);
  expect(loads.slice(-3)).toEqual(["onnx-http b1 c2", "onnx-grpc b1 c2", "onnx-grpc b1 c2"]);
  expect(last(options.slice(-3))).toEqual([undefined, undefined, "shared"]);
  expect(options.slice(-3).map(({ conditions }) => conditions)).toEqual(
    Array(3).fill(grid.protocol.link),
  );
  expect(kept[0]?.notes[0]).toMatch(/^A local proxy emulated the link of 200 Mbit\/s and 10 ms; /);
});

test("protocol measures pools and new connections over both protocols", async () => {
  const { run, options } = recorder(at("onnx-http"), at("onnx-grpc"));
  const protocol = { ...grid.protocol, batchSizes: [1], concurrency: [8] };
  await protocolStudy.run({
    ...run,
    grid: { ...grid, protocol: { ...protocol, channels: [4, "new"] } },
  });
  expect(options.slice(0, 4).map(({ load }) => load.channels)).toEqual([4, "new", 4, "new"]);
});

test("protocol fails if no Triton has both endpoints", async () => {
  const { run, kept } = recorder(at("onnx-http"), at("trt-grpc"));
  await expect(protocolStudy.run(run)).rejects.toThrow(
    "no Triton has both an HTTP and a gRPC endpoint, like onnx-http and onnx-grpc",
  );
  expect(kept).toEqual([]);
});

test("link measures each endpoint behind each link, through the proxy", async () => {
  const { run, loads, options } = recorder(
    at("onnx-http", "uint8"),
    at("onnx-grpc"),
    at("onnx-http", "fp32", "json"),
  );
  await linkStudy.run(run);
  expect(loads).toEqual([
    "onnx-http_uint8 b1 c1",
    "onnx-grpc b1 c1",
    "onnx-http_uint8 b1 c1",
    "onnx-grpc b1 c1",
  ]);
  expect(options.map(({ conditions }) => conditions?.bandwidthMbps)).toEqual([10, 10, 100, 100]);
  expect(options[0]?.url).toMatch(/^http:\/\/127\.0\.0\.1:\d{4,}$/);
  expect(options[1]?.url).toMatch(/^127\.0\.0\.1:\d{4,}$/);
});

test("scaling uses the same number of clients per GPU", async () => {
  const { run, loads, options } = recorder(at("embed-http", "jpeg"));
  const conditions = { gpus: 4, topology: "instance-group" } as const;
  await measureScaling({ run, conditions });
  expect(loads).toEqual(["embed-http b1 c12"]);
  expect(options[0]?.conditions).toEqual(conditions);
});

test("topology measures the gateway, which reaches all GPUs in both topologies", async () => {
  const { run, loads } = recorder(at("embed-http", "jpeg"), at("onnx-http"));
  await measureTopology({ run, conditions: { gpus: 4, topology: "per-gpu" } });
  expect(loads).toEqual(["embed-http b1 c5"]);
});

test("an IPv6 address behind a link has no brackets", () => {
  expect(hostAndPort("http://[::1]:8000")).toEqual({ protocol: "http:", host: "::1", port: 8000 });
  expect(hostAndPort("[::1]:8001")).toEqual({ protocol: "grpc:", host: "::1", port: 8001 });
  expect(hostAndPort("localhost:8001").host).toBe("localhost");
});

test("link records the delay of its proxy", async () => {
  const { run, kept } = recorder(at("onnx-http"));
  await linkStudy.run(run);
  expect(kept[0]?.notes.at(-1)).toMatch(
    /^The proxy's own delay was [\d.]+ to [\d.]+ ms in each direction/,
  );
});
