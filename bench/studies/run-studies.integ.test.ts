import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { dockerDocument } from "../../artefact/test-artefact.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { type BenchRecord, benchRecord } from "../record/bench-record.ts";
import type { StudyId } from "../record/study-result.ts";
import { finishBenchRecord } from "../run/compose-record.ts";
import {
  newTestRecord,
  simulationOf,
  testContext,
  testImages,
  testSettings,
} from "../run/test-run.ts";
import { runStudies } from "./run-studies.ts";
import { type StudyEnvironment, StudyUnavailable } from "./study.ts";
import { testGrid } from "./test-study-run.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-studies-test-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Generous, for a busy machine. */
const timeoutMs = 600_000;
let images: Awaited<ReturnType<typeof testImages>>;

beforeAll(async () => {
  images = await testImages(2, await tinyModel());
});

/** Embed server and Triton. */
async function environment(): Promise<StudyEnvironment> {
  const [embed = 0, http = 0, grpc = 0, metrics = 0] = await freePorts(4);
  const file = join(mkdtempSync(join(folder, "environment-")), "cdk.tf.json");
  const document = dockerDocument({ ports: { embed, triton: { http, grpc, metrics } } });
  writeFileSync(file, JSON.stringify(document));
  const simulation = await simulationOf(file, "cdk.tf.json");
  return {
    name: "two-services",
    offers: ["embed-http", "onnx-http", "onnx-grpc"],
    source: (change) => ({ ...simulation, ...change }),
    coldStarts: async () => {
      throw new StudyUnavailable("not from a test");
    },
    deployment: { gpus: 2, topology: "per-gpu" },
  };
}

async function study(
  studies: readonly StudyId[],
  options: { readonly named?: boolean; readonly signal?: AbortSignal } = {},
): Promise<BenchRecord> {
  const settings = { ...testSettings, windows: 1 };
  const record = await newTestRecord("simulation", settings);
  await runStudies({
    studies,
    named: options.named ?? true,
    environments: [await environment()],
    endpoints: [],
    context: testContext({
      settings,
      items: images.items,
      workers: 1,
      ...(options.signal && { signal: options.signal }),
    }),
    grid: {
      ...testGrid,
      batchSizes: [1, 2],
      protocol: { ...testGrid.protocol, batchSizes: [1, 2] },
      concurrency: {
        concurrency: [1, 2],
        "queue-delay": [1, 2],
        scaling: [1, 2],
        topology: [1, 2],
      },
      queueDelaysUs: [0, 20_000],
    },
    reference: images.reference,
    record,
  });
  return finishBenchRecord(record, imageTowerOf(openclipVitB32));
}

describe("studies of a simulated environment", () => {
  let record: BenchRecord;
  beforeAll(async () => {
    record = await study(["batch", "memory", "queue-delay", "scaling"]);
  }, timeoutMs);
  const loadPoints = (id: StudyId) => record.loadPoints.filter((point) => point.study === id);

  test("produce a valid record without failures", () => {
    expect(record.failures).toEqual([]);
    benchRecord.parse(record);
  });

  test("the record contains each study once", () => {
    expect(record.studies.map((it) => it.study)).toEqual([
      "batch",
      "memory",
      "scaling",
      "queue-delay",
    ]);
  });

  test("every load point has samples and a unique id", () => {
    for (const { id, samples } of record.loadPoints) expect(samples, id).toBeGreaterThan(0);
    expect(new Set(record.loadPoints.map(({ id }) => id)).size).toBe(record.loadPoints.length);
  });

  test("batch measures every endpoint of the environment", () => {
    const endpoints = [...new Set(loadPoints("batch").map(({ endpoint }) => endpoint))];
    expect(endpoints).toEqual(["embed-http", "onnx-http", "onnx-grpc"]);
  });

  test("memory has a row per service", () => {
    const found = record.studies.find((it) => it.study === "memory");
    const services = found?.study === "memory" ? found.services : [];
    expect(services.map(({ service }) => service)).toEqual(["embed", "triton-onnx"]);
    if (process.platform !== "linux") return;
    for (const { residentMiB = 0, residentUnderLoadMiB = 0 } of services) {
      expect(residentMiB).toBeGreaterThan(20);
      expect(residentUnderLoadMiB).toBeGreaterThanOrEqual(residentMiB);
    }
  });

  test("a single client's latency includes the queue delay", () => {
    const one = (delay: number) =>
      loadPoints("queue-delay").find(
        ({ conditions, load }) =>
          conditions.queueDelayUs === delay &&
          load.kind === "closed loop" &&
          load.concurrency === 1,
      );
    expect(loadPoints("queue-delay")).toHaveLength(4);
    expect(one(20_000)?.latencyMs?.p50).toBeGreaterThanOrEqual(20);
    expect(one(0)?.server?.queueMs).toBeLessThan(10);
  });

  test("scaling gives each GPU the same load", () => {
    expect(
      loadPoints("scaling").map(({ conditions, load }) => [
        conditions.gpus,
        load.kind === "closed loop" && load.concurrency,
      ]),
    ).toEqual([
      [2, 2],
      [2, 4],
    ]);
  });
});

test.each([
  [true, { failures: ["cold-start of two-services: not from a test"], notes: [] }],
  [false, { failures: [], notes: ["Skipped: cold-start of two-services: not from a test."] }],
])(
  "an unavailable study is a failure if it was named (%s), else a note",
  async (named, found) => {
    expect(await study(["cold-start"], { named })).toMatchObject(found);
  },
  timeoutMs,
);
