import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts, isPortInUse } from "../../artefact/free-ports.ts";
import { dockerDocument, type TestDocument } from "../../artefact/test-artefact.ts";
import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { ensureOptimised } from "../../model-tools/convert/optimise.ts";
import { generateModel } from "../../model-tools/generate/generate.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import type { SimulatedSource } from "../../target/open/simulation.ts";
import type { TargetSource } from "../../target/target.ts";
import type { BenchEvent } from "../measure/bench-events.ts";
import { chooseEndpoints, type RequestedEndpoint } from "../measure/choose-endpoints.ts";
import {
  type BenchRecord,
  benchRecord,
  type LoadPoint,
  parseBenchRecord,
} from "../record/bench-record.ts";
import { testLoadPoint } from "../report/test-bench-record.ts";
import { type BenchOptions, runBench } from "./bench-run.ts";
import { finishBenchRecord } from "./compose-record.ts";
import {
  newTestRecord,
  project,
  simulationOf,
  testContext,
  testImages,
  testSettings,
  testTarget,
} from "./test-run.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-bench-test-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let written = 0;
async function source(
  document: TestDocument,
  changes: Partial<SimulatedSource> = {},
): Promise<SimulatedSource> {
  const name = `environment-${++written}`;
  mkdirSync(join(folder, name));
  const file = join(folder, name, "cdk.tf.json");
  writeFileSync(file, JSON.stringify(document));
  const found = await simulationOf(file, `${name}/cdk.tf.json`, "verify/test-faulty-server.ts");
  return { ...found, ...changes };
}

async function twoServices(): Promise<{ document: TestDocument; ports: readonly number[] }> {
  const ports = await freePorts(4);
  const [embed = 0, http = 0, grpc = 0, metrics = 0] = ports;
  const document = dockerDocument({
    ports: { embed, triton: { http, grpc, metrics } },
    repository: join(project, "model_repository"),
  });
  return { document, ports };
}

interface Run {
  readonly record: BenchRecord;
  readonly events: readonly BenchEvent[];
}

interface RunChanges extends Partial<Pick<BenchOptions, "batchSizes" | "loads" | "slo">> {
  readonly onEvent?: (event: BenchEvent) => void;
  readonly signal?: AbortSignal;
  readonly rounds?: number;
  /** Replaces the served model. */
  readonly referenceModel?: string;
}

/** Run in progress; its record grows with each load point. */
async function begin(
  sources: readonly TargetSource[],
  endpoints: readonly RequestedEndpoint[],
  changes: RunChanges = {},
): Promise<Run & { readonly done: Promise<void> }> {
  const events: BenchEvent[] = [];
  const { items, reference } = await testImages(3, changes.referenceModel ?? (await tinyModel()));
  const settings = { ...testSettings, rounds: changes.rounds ?? 1 };
  const record = await newTestRecord("simulation", settings);
  const onEvent = (event: BenchEvent) => {
    events.push(event);
    changes.onEvent?.(event);
  };
  const done = runBench({
    context: testContext({
      settings,
      items,
      onEvent,
      ...(changes.signal && { signal: changes.signal }),
    }),
    record,
    sources,
    endpoints,
    batchSizes: changes.batchSizes ?? [1],
    loads: changes.loads ?? [{ kind: "closed loop", concurrency: 2 }],
    slo: changes.slo,
    reference,
  });
  return { record, events, done };
}

async function run(...args: Parameters<typeof begin>): Promise<Run> {
  const { record, events, done } = await begin(...args);
  await done;
  return { record: finishBenchRecord(record, imageTowerOf(openclipVitB32)), events };
}

const endpoint = (name: "embed-http" | "onnx-http" | "onnx-grpc" | "trt-http", byName = false) => ({
  endpoint: name,
  payload: name === "embed-http" ? ("jpeg" as const) : ("fp32" as const),
  serialization: "binary" as const,
  byName,
});

describe("a grid over an environment with an embed server and a Triton server", () => {
  let measured: Run;

  beforeAll(async () => {
    const { document } = await twoServices();
    measured = await run(
      [await source(document)],
      [endpoint("embed-http"), endpoint("onnx-http"), endpoint("onnx-grpc"), endpoint("trt-http")],
      { batchSizes: [1, 3] },
    );
  });

  test("produces a valid record without failures", () => {
    expect(benchRecord.safeParse(measured.record).error).toBeUndefined();
    expect(measured.record.failures).toEqual([]);
    expect(measured.record.passed).toBe(true);
  });

  test("has a load point for every available endpoint and batch size", () => {
    expect(measured.record.loadPoints.map(({ id }) => id)).toEqual([
      "embed-http b1 c2",
      "embed-http b3 c2",
      "onnx-http b1 c2",
      "onnx-http b3 c2",
      "onnx-grpc b1 c2",
      "onnx-grpc b3 c2",
    ]);
    expect(measured.record.settings.endpoints).toEqual(["embed-http", "onnx-http", "onnx-grpc"]);
  });

  test("compares every endpoint with the local reference before the first load", () => {
    const { parity } = measured.record;
    expect(parity.map(({ endpoint: on, passed }) => [on, passed])).toEqual([
      ["embed-http", true],
      ["onnx-http", true],
      ["onnx-grpc", true],
    ]);
    // each image individually and all as one batch
    expect(parity.map(({ images }) => images)).toEqual([6, 6, 6]);
    const kinds = measured.events.map(({ kind }) => kind);
    expect(kinds.lastIndexOf("parity")).toBeLessThan(kinds.indexOf("point"));
  });

  test("has the server counters of the measured windows for each load point", () => {
    for (const { id, server, samples: answered, imagesPerRequest } of measured.record.loadPoints) {
      expect(server?.requests, id).toBeGreaterThan(0.5 * answered);
      expect(server?.averageBatch, id).toBeGreaterThanOrEqual(imagesPerRequest);
      expect(server?.requestMs, id).toBeGreaterThan(0);
      expect(server?.inferMs, id).toBeGreaterThan(0);
    }
    const embed = measured.record.loadPoints.filter(({ endpoint: on }) => on === "embed-http");
    for (const { server } of embed) expect(server?.decodeMs).toBeGreaterThan(0);
  });

  test("describes the subject of the measurement", () => {
    const { subject, notes } = measured.record;
    expect(subject.environments.map(({ name }) => name)).toEqual(["two-services"]);
    expect(subject.servers.map(({ service }) => service)).toEqual(["embed", "triton-onnx"]);
    expect(subject.price).toBeUndefined();
    expect(notes).toContain(
      "two-services: local processes of clipstack's server replaced its containers.",
    );
  });
});

test("every round has all load points in another order, of restarted processes and with new connections", async () => {
  const { document } = await twoServices();
  const order: string[] = [];
  const { record, events } = await run(
    [await source(document, { endpoints: ["onnx-http", "onnx-grpc"] })],
    [endpoint("onnx-http"), endpoint("onnx-grpc")],
    {
      rounds: 2,
      batchSizes: [1, 2],
      onEvent: (event) => {
        if (event.kind === "round" || event.kind === "point") order.push(event.point.id);
      },
    },
  );
  expect(record.failures).toEqual([]);
  expect(record.parity).toHaveLength(2);
  expect(record.subject.environments).toHaveLength(1);
  const ids = record.loadPoints.map(({ id }) => id);
  expect(ids).toHaveLength(4);
  const rounds = [order.slice(0, 4), order.slice(4)];
  for (const round of rounds) expect(round.toSorted()).toEqual(ids.toSorted());
  expect(rounds[0]).not.toEqual(rounds[1]);
  for (const { rounds: own, samples: all, histogram, imagesPerSecond } of record.loadPoints) {
    expect(own.map(({ round }) => round)).toEqual([1, 2]);
    expect(own.reduce((sum, round) => sum + round.samples, 0)).toBe(all);
    expect(histogram.reduce((sum, [, count]) => sum + count, 0)).toBe(all);
    const [first, second] = own.map((round) => round.imagesPerSecond);
    expect(imagesPerSecond).toBeCloseTo((first! + second!) / 2);
  }
  // the counters of restarted processes begin at 0, so a request count of all rounds is a sum
  const [first] = record.loadPoints;
  expect(first?.server?.requests).toBeGreaterThan(0.5 * first!.samples);
  const starts = events.filter((event) => event.kind === "phase" && /starting/.test(event.text));
  expect(starts).toHaveLength(2);
});

test("an SLO is searched below the closed loop for each endpoint and batch size, and its trials are in the record", async () => {
  const { document } = await twoServices();
  const { record, events } = await run(
    [await source(document, { endpoints: ["onnx-http"] })],
    [endpoint("onnx-http")],
    {
      slo: {
        // below the time of any response, so that no rate meets it
        slo: { percentile: "p50", limitMs: 0.001 },
        arrivals: "poisson",
        seed: 3,
        demandPerSecond: 500,
      },
    },
  );
  expect(benchRecord.safeParse(record).error).toBeUndefined();
  expect(record.loadPoints.map(({ id }) => id)).toEqual(["onnx-http b1 c2"]);
  expect(record.slo?.map(({ endpoint: on, imagesPerRequest }) => [on, imagesPerRequest])).toEqual([
    ["onnx-http", 1],
  ]);
  for (const [i, { closedLoopPerSecond, trials, demandPerSecond }] of record.slo!.entries()) {
    expect(closedLoopPerSecond).toBe(record.loadPoints[i]?.requestsPerSecond);
    expect(demandPerSecond).toBe(500);
    expect(trials[0]?.ratePerSecond).toBeCloseTo(closedLoopPerSecond / 2, 0);
    expect(trials.every(({ goodputPerSecond, seed }) => goodputPerSecond === 0 && seed === 3)).toBe(
      true,
    );
    expect(trials.some(({ verdict }) => verdict === "met")).toBe(false);
  }
  const notices = events.flatMap((event) => (event.kind === "notice" ? [event.text] : []));
  expect(notices[0]).toMatch(/^onnx-http b1 p50 ≤ 0.001 ms: [\d.]+ requests\/s, goodput 0.0, p50 /);
});

test("starts only the services required by the endpoints and stops them", async () => {
  const { document, ports } = await twoServices();
  const [embed = 0, http = 0] = ports;
  const seen: boolean[] = [];
  const onEvent = (event: BenchEvent) => {
    if (event.kind !== "parity") return;
    void Promise.all([isPortInUse(embed), isPortInUse(http)]).then((taken) => seen.push(...taken));
  };
  const { record } = await run(
    [await source(document, { endpoints: ["onnx-http"] })],
    [endpoint("onnx-http")],
    { onEvent },
  );
  expect(record.loadPoints).toHaveLength(1);
  expect(seen).toEqual([false, true]);
  expect([await isPortInUse(embed), await isPortInUse(http)]).toEqual([false, false]);
});

test("the models of each payload are measured if the Triton server loads their models", async () => {
  const { document } = await twoServices();
  const triton = document.resource.docker_container?.triton as { command: string[] };
  triton.command.push("--model-control-mode=explicit", "--load-model=openclip_vit_b32");
  const u8ModelFile = join(folder, "u8.onnx");
  await ensureOptimised(defaultModel, await tinyModel(), u8ModelFile);
  const { record } = await run(
    [await source(document, { endpoints: ["onnx-http", "onnx-grpc"], u8ModelFile })],
    [
      { endpoint: "onnx-http", payload: "jpeg", serialization: "binary", byName: true },
      { endpoint: "onnx-grpc", payload: "uint8", serialization: "binary", byName: true },
      { endpoint: "onnx-http", payload: "fp32", serialization: "json", byName: true },
    ],
  );
  expect(record.failures).toEqual([]);
  expect(record.loadPoints.map(benchEndpointName)).toEqual([
    "onnx-http_jpeg",
    "onnx-grpc_uint8",
    "onnx-http_json",
  ]);
  expect(record.loadPoints[0]?.server?.decodeMs).toBeGreaterThan(0);
  expect(record.notes.join(" ")).toContain("openclip_vit_b32_jpeg, which the container lacks");
});

test("fails without timing an endpoint whose embeddings differ from the reference", async () => {
  const { document } = await twoServices();
  const other = join(folder, "other.onnx");
  await generateModel({ spec: defaultModel, profile: "tiny", seed: 2, file: other });
  const { record } = await run(
    [await source(document, { endpoints: ["onnx-http"] })],
    [endpoint("onnx-http")],
    { referenceModel: other },
  );
  expect(record.loadPoints).toEqual([]);
  expect(record.passed).toBe(false);
  expect(record.failures).toHaveLength(1);
  expect(record.failures[0]).toMatch(
    /^two-services\/triton-onnx onnx-http: .* differ from the local reference: cosine .*; must be ≥ 0.999 and ≤ 0.10 %; the reference uses the weights of --weights$/,
  );
});

test("an interrupted run keeps its measurements", async () => {
  const { document, ports } = await twoServices();
  const controller = new AbortController();
  const { record, done } = await begin(
    [await source(document, { endpoints: ["onnx-http"] })],
    [endpoint("onnx-http")],
    {
      loads: [2, 3, 4].map((concurrency) => ({ kind: "closed loop", concurrency }) as const),
      signal: controller.signal,
      onEvent: (event) => {
        if (event.kind === "window" && event.pointId === "onnx-http b1 c3") controller.abort();
      },
    },
  );
  await expect(done).rejects.toThrow("aborted");
  expect(record.loadPoints.map(({ id, stability }) => [id, stability.verdict])).toEqual([
    ["onnx-http b1 c2", expect.not.stringMatching("interrupted")],
    ["onnx-http b1 c3", "interrupted"],
  ]);
  expect(record.subject.environments).toHaveLength(1);
  expect(await Promise.all(ports.map(isPortInUse))).toEqual([false, false, false, false]);
});

/** Runs a bench of an embed server at an address. */
async function runEmbedAddress(listener: RequestListener): Promise<Run> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const endpoints = [{ endpoint: "embed-http", url: `http://127.0.0.1:${port}` }] as const;
  try {
    return await run([{ kind: "addresses", endpoints, metrics: [] }], [endpoint("embed-http")]);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

describe("addresses given on the command line", () => {
  test("fails with one line if no server responds", async () => {
    const [port = 0] = await freePorts(1);
    const endpoints = [{ endpoint: "onnx-http", url: `http://127.0.0.1:${port}` }] as const;
    await expect(
      run([{ kind: "addresses", endpoints, metrics: [] }], [endpoint("onnx-http")]),
    ).rejects.toThrow(`addresses: onnx-http does not respond at http://127.0.0.1:${port}`);
  });

  test("fails on an endpoint without embeddings and reports its response", async () => {
    const { record } = await runEmbedAddress((_request, response) => response.end("{}"));
    expect(record.loadPoints).toEqual([]);
    expect(record.failures).toEqual([
      "addresses/embed embed-http: the application/octet-stream response must be rows of 2048 bytes, got 2 bytes",
    ]);
  });
});

test.each([
  ["zeros", 0],
  ["values that are no numbers", Number.NaN],
])("fails on a path that answers %s, with a record that can be read", async (_what, value) => {
  const embedding = Buffer.from(new Float32Array(512).fill(value).buffer);
  const { record } = await runEmbedAddress(({ headers }, response) => {
    const images = headers["content-type"]?.startsWith("multipart/") ? 3 : 1;
    response.end(Buffer.concat(Array(images).fill(embedding)));
  });
  expect(record.failures).toHaveLength(1);
  expect(record.failures[0]).toMatch(
    /^addresses\/embed embed-http: .+: returned zeros or non-finite values, which cannot be compared$/,
  );
  expect(parseBenchRecord(JSON.stringify(record), "record")).toEqual(
    JSON.parse(JSON.stringify(record)),
  );
});

test("of several services with the same endpoint, the first is measured and the others are listed", () => {
  const notices: string[] = [];
  const targets = ["triton-0", "triton-1", "triton-2"].map((service) => testTarget({ service }));
  const chosen = chooseEndpoints([endpoint("onnx-http")], { targets }, (text) =>
    notices.push(text),
  );
  expect(chosen.map((it) => it.target.service)).toEqual(["triton-0"]);
  expect(notices).toEqual(["onnx-http: measured on triton-0; also offered by triton-1, triton-2"]);
});

test("fails on a requested endpoint that does not exist", () => {
  expect(() =>
    chooseEndpoints(
      [endpoint("onnx-http"), endpoint("trt-http", true)],
      { targets: [testTarget({ payloads: ["fp32", "uint8"] })] },
      () => {},
    ),
  ).toThrow(
    "single-gpu does not offer trt-http; available: onnx-http, onnx-http_json, onnx-http_uint8",
  );
});

test("fails if no requested endpoint exists and lists the existing ones", () => {
  expect(() =>
    chooseEndpoints([endpoint("embed-http")], { targets: [testTarget()] }, () => {}),
  ).toThrow("single-gpu does not offer embed-http; available: onnx-http, onnx-http_json");
});

const cell = (more: Partial<LoadPoint>): LoadPoint =>
  testLoadPoint({}, { id: "onnx-http b1 c1", environment: "one", ...more });

async function finished(
  loadPoints: readonly LoadPoint[],
  devices?: Parameters<typeof finishBenchRecord>[2],
) {
  const record = await newTestRecord("simulation");
  record.loadPoints.push(...loadPoints);
  return finishBenchRecord(record, imageTowerOf(openclipVitB32), devices);
}

test("load points with equal ids are disambiguated by their differences", async () => {
  const { loadPoints } = await finished([
    cell({}),
    cell({ environment: "two" }),
    cell({ id: "embed-http b1 c1", study: "batch" }),
    cell({ id: "embed-http b1 c1", study: "concurrency" }),
    cell({ id: "trt-http b1 c1" }),
    cell({ id: "trt-http b1 c1" }),
    cell({ id: "onnx-grpc b1 c1" }),
  ]);
  expect(loadPoints.map(({ id }) => id)).toEqual([
    "onnx-http b1 c1, one",
    "onnx-http b1 c1, two",
    "embed-http b1 c1, batch",
    "embed-http b1 c1, concurrency",
    "trt-http b1 c1, #5",
    "trt-http b1 c1, #6",
    "onnx-grpc b1 c1",
  ]);
});

test("a failed request fails the run with its code", async () => {
  const { passed, failures } = await finished([
    cell({ errorsWithWarmup: { "503": 3, timeout: 1 } }),
  ]);
  expect(passed).toBe(false);
  expect(failures).toEqual(["onnx-http b1 c1: requests failed: 3 × 503, 1 × timeout"]);
});

test("an invalid record fails the run and names the field", async () => {
  const { passed, failures } = await finished([cell({ imagesPerSecond: Number.NaN })]);
  expect(passed).toBe(false);
  expect(failures).toEqual([
    expect.stringMatching(/^the record is invalid: loadPoints\.0\.imagesPerSecond: /),
  ]);
});

test("a figure above the device's peak performance fails the run", async () => {
  const devices = new Map([["one", { name: "t4", count: 1, fp16DenseTflops: 65 }]]);
  const { passed, failures } = await finished([cell({ imagesPerSecond: 8_000 })], devices);
  expect(passed).toBe(false);
  expect(failures[0]).toMatch(/^onnx-http b1 c1: 8000 images\/s are more than 1 × t4 can compute/);
});
