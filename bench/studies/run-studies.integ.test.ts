import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { dockerDocument } from "../../artefact/test-artefact.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { normalised } from "../../inference/preprocess/image-tensor.ts";
import { preprocess } from "../../inference/preprocess/preprocess.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import type { PreparedImage } from "../../target/reference/reference.ts";
import {
  makeReference,
  type ReferenceImage,
  readSamples,
} from "../../target/reference/reference.ts";
import { type BenchRecord, benchRecord } from "../record/bench-record.ts";
import type { StudyId } from "../record/study-result.ts";
import { defaultSettings } from "../run/bench-run.ts";
import { finishBenchRecord, newBenchRecord } from "../run/compose-record.ts";
import { runStudies } from "./run-studies.ts";
import { type StudyEnvironment, StudyUnavailable } from "./study.ts";

const project = fileURLToPath(new URL("../../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "clipstack-studies-test-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Generous, for a busy machine. */
const timeoutMs = 600_000;
const { input } = imageTowerOf(defaultModel);
const limits = { maxPixels: 100_000_000 };
let modelFile: string;
let reference: readonly ReferenceImage[];
let images: readonly PreparedImage[];

beforeAll(async () => {
  modelFile = await tinyModel();
  const samples = readSamples(join(project, "model-tools/samples"), 2);
  reference = await makeReference(
    samples,
    { spec: openclipVitB32, file: modelFile },
    async (image) => normalised(await preprocess(image, input, limits), input),
  );
  images = await Promise.all(
    reference.map(async (image) => ({
      ...image,
      pixels: await preprocess(image.bytes, input, limits),
    })),
  );
});

/** Embed server and Triton. */
async function environment(): Promise<StudyEnvironment> {
  const [embed = 0, http = 0, grpc = 0, metrics = 0] = await freePorts(4);
  const file = join(mkdtempSync(join(folder, "environment-")), "cdk.tf.json");
  const document = dockerDocument({ ports: { embed, triton: { http, grpc, metrics } } });
  writeFileSync(file, JSON.stringify(document));
  const source: StudyEnvironment["source"] = (change) => ({
    kind: "simulated",
    environment: { file, displayPath: "cdk.tf.json", editedByHand: false },
    serverCommand: [
      process.execPath,
      "--import",
      import.meta.resolve("tsx"),
      join(project, "inference-image/main.ts"),
    ],
    modelRepository: join(project, "model_repository"),
    modelFiles: new Map([[openclipVitB32.name, { image: modelFile }]]),
    portOffset: 0,
    ...change,
  });
  return {
    name: "two-services",
    offers: ["embed-http", "onnx-http", "onnx-grpc"],
    source,
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
  const settings: BenchRecord["settings"] = {
    ...defaultSettings,
    endpoints: [],
    windowSeconds: 0.1,
    rounds: 1,
    windows: 1,
    warmupSeconds: 0.1,
    durationSeconds: 3,
    images: { source: "samples", count: images.length, meanBytes: 0 },
  };
  const record = await newBenchRecord({
    project,
    startedAt: new Date(),
    target: "simulation",
    model: { name: "tiny", weights: "random" },
    settings,
  });
  await runStudies({
    studies,
    named: options.named ?? true,
    environments: [await environment()],
    endpoints: [],
    context: {
      tower: { spec: openclipVitB32, modality: "image" },
      settings,
      items: images,
      workers: 1,
      signal: options.signal ?? new AbortController().signal,
      onEvent: () => {},
    },
    grid: {
      batchSizes: [1, 2],
      protocol: {
        batchSizes: [1, 2],
        concurrency: [1, 2],
        channels: ["each", "shared"],
      },
      concurrency: {
        concurrency: [1, 2],
        "queue-delay": [1, 2],
        scaling: [1, 2],
        topology: [1, 2],
      },
      queueDelaysUs: [0, 20_000],
    },
    reference,
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

test(
  "an unavailable study is a failure if it was named",
  async () => {
    const { failures, passed } = await study(["cold-start"]);
    expect(failures).toEqual(["cold-start of two-services: not from a test"]);
    expect(passed).toBe(false);
  },
  timeoutMs,
);

test(
  "an unavailable study is a note if all studies were requested",
  async () => {
    const { failures, notes } = await study(["cold-start"], { named: false });
    expect(failures).toEqual([]);
    expect(notes).toEqual(["Skipped: cold-start of two-services: not from a test."]);
  },
  timeoutMs,
);
