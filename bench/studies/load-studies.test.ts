import { expect, test } from "vitest";
import type { BenchEndpoint } from "../../contract/bench-endpoint.ts";
import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import type { MeasuredEndpoint } from "../measure/choose-endpoints.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import type { StudyResult } from "../record/study-result.ts";
import { testBenchRecord } from "../report/test-bench-record.ts";
import { testTarget } from "../run/test-run.ts";
import { batchStudy } from "./batch.ts";
import { concurrencyStudy } from "./concurrency.ts";
import { loadPointsOf, scalingStudy, topologyStudy } from "./gpu-studies.ts";
import { protocolStudy } from "./protocol.ts";
import type { StudyGrid, StudyRun } from "./study.ts";
import { testGrid, testStudyRun } from "./test-study-run.ts";

const grid: StudyGrid = {
  ...testGrid,
  batchSizes: [1, 4, 8],
  protocol: { ...testGrid.protocol, batchSizes: [1, 4, 8] },
  concurrency: { concurrency: [1, 16], "queue-delay": [2], scaling: [3], topology: [5] },
};

const at = (
  endpoint: BenchEndpoint["endpoint"],
  payload: BenchEndpoint["payload"] = "fp32",
  serialization: BenchEndpoint["serialization"] = "binary",
): MeasuredEndpoint => ({
  target: testTarget({ environment: "e", service: endpoint.slice(0, 4), endpoint }),
  endpoint: { endpoint, payload, serialization },
});

/** Run that records the load points instead of measuring them: `onnx-http b4 c1`. */
function recorder(...endpoints: MeasuredEndpoint[]) {
  const loads: string[] = [];
  const kept: StudyResult[] = [];
  const added: LoadPoint[] = [];
  const options: Parameters<StudyRun["measure"]>[2][] = [];
  const run = testStudyRun(endpoints, {
    grid,
    addLoadPoints: (loadPoints) => added.push(...loadPoints),
    async measure(_study, { endpoint }, given) {
      const { load, batch } = given;
      const clients = load.kind === "closed loop" ? load.concurrency : 0;
      loads.push(`${benchEndpointName(endpoint)} b${batch} c${clients}`);
      options.push(given);
    },
    addResult(result) {
      kept.push(result);
      return result;
    },
  });
  return { run, loads, kept, options, added };
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
  expect(loads.slice(-3)).toEqual(["onnx-grpc b8 c2", "onnx-grpc b8 c2", "onnx-http b8 c2"]);
  expect(options.slice(-3).map(({ load }) => load.channels)).toEqual([
    "shared",
    undefined,
    undefined,
  ]);
  expect(kept).toHaveLength(1);
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

test("protocol fails if no Triton server has both endpoints", async () => {
  const { run, kept } = recorder(at("onnx-http"), at("trt-grpc"));
  await expect(protocolStudy.run(run)).rejects.toThrow(
    "no Triton server has both an HTTP and a gRPC endpoint, like onnx-http and onnx-grpc",
  );
  expect(kept).toEqual([]);
});

const deployment = { gpus: 4, topology: "per-gpu" } as const;

test("scaling uses the same number of clients per GPU", async () => {
  const { run, loads, options } = recorder(at("embed-http", "jpeg"));
  await scalingStudy.run({ ...run, deployment });
  expect(loads).toEqual(["embed-http b1 c12"]);
  expect(options[0]?.conditions).toEqual(deployment);
});

test("topology measures the gateway, which reaches all GPUs in both topologies", async () => {
  const { run, loads } = recorder(at("embed-http", "jpeg"), at("onnx-http"));
  await topologyStudy.run({ ...run, deployment });
  expect(loads).toEqual(["embed-http b1 c5"]);
});

test("the load points of another record are added once, with its name", async () => {
  const { run, added, kept } = recorder(at("embed-http", "jpeg"));
  const record = testBenchRecord();
  const against = { path: "one-gpu.json", record };
  const compared = { ...run, model: record.subject.model, deployment: { ...deployment, against } };
  await scalingStudy.run(compared);
  await scalingStudy.run({ ...compared, round: 2 });
  expect(added.map(({ id }) => id)).toEqual(
    record.loadPoints
      .filter(({ study }) => study === "scaling")
      .map(({ id }) => `${id} (one-gpu.json)`),
  );
  expect(kept[0]?.notes[0]).toMatch(/^Load points labelled \(one-gpu\.json\) are from that record/);
});

test("a record of another model, or without the study, is rejected", () => {
  const { subject, ...record } = testBenchRecord();
  expect(() =>
    loadPointsOf("scaling", { ...record, subject }, "other.json", { name: "other" }),
  ).toThrow("--against other.json: must be of the same model file");
  expect(() =>
    loadPointsOf("scaling", { ...record, subject, loadPoints: [] }, "other.json", subject.model),
  ).toThrow("--against other.json: must contain load points of the study 'scaling'");
});
