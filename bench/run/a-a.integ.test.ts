import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { embedsDocument } from "../../artefact/test-artefact.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import type { SimulatedSource } from "../../target/open/simulation.ts";
import { readImages } from "../../target/reference/read-images.ts";
import { makeReference, readSamples, samplesFolder } from "../../target/reference/reference.ts";
import { verdictOf } from "../report/verdict.ts";
import { defaultSettings, runBench } from "./bench-run.ts";
import { finishBenchRecord, newBenchRecord } from "./compose-record.ts";

const project = fileURLToPath(new URL("../../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "clipstack-a-a-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const { input } = imageTowerOf(defaultModel);

/** Environment with one embed server. */
async function environment(name: string): Promise<SimulatedSource> {
  const [port = 0] = await freePorts(1);
  mkdirSync(join(folder, name), { recursive: true });
  const file = join(folder, name, "cdk.tf.json");
  writeFileSync(file, JSON.stringify(embedsDocument(name, [{ name: "embed", port }])));
  return {
    kind: "simulated",
    environment: { file, displayPath: `${name}/cdk.tf.json`, editedByHand: false },
    serverCommand: [
      ...[process.execPath, "--import", import.meta.resolve("tsx")],
      join(project, "inference-image/main.ts"),
    ],
    modelRepository: join(project, "model_repository"),
    modelFiles: new Map([[defaultModel.name, { image: await tinyModel() }]]),
    portOffset: 0,
  };
}

async function benchIdentical() {
  const items = (await readImages(samplesFolder, input)).slice(0, 3);
  const settings = {
    ...defaultSettings,
    ...{ endpoints: [], rounds: 5, durationSeconds: 5, windowSeconds: 0.3, warmupSeconds: 0.3 },
    images: { source: "samples", count: items.length, meanBytes: 1 },
  };
  const model = { name: "tiny", weights: "random" };
  const record = await newBenchRecord({
    ...{ project, startedAt: new Date(), target: "simulation", model, settings },
  });
  const tower = { spec: defaultModel, modality: "image" } as const;
  await runBench({
    context: {
      ...{ tower, settings, items },
      signal: new AbortController().signal,
      onEvent: () => {},
    },
    record,
    sources: [await environment("left"), await environment("right")],
    endpoints: [{ endpoint: "embed-http", payload: "jpeg", serialization: "binary", byName: true }],
    batchSizes: [1],
    loads: [{ kind: "closed loop", concurrency: 2 }],
    reference: await makeReference(readSamples(3), {
      spec: defaultModel,
      file: await tinyModel(),
    }),
  });
  return finishBenchRecord(record, imageTowerOf(defaultModel));
}

// by construction, 5 % of A/A comparisons have a winner; both of two do in 0.25 %
test("two identical environments are a tie in latency and throughput", { retry: 1 }, async () => {
  const record = await benchIdentical();
  expect(record.failures).toEqual([]);
  expect(record.loadPoints.map(({ rounds }) => rounds.length)).toEqual([5, 5]);
  // a simulation has no verdict on performance: judged as a deployment; a busy machine delays the load generator of both alike
  const subject = { ...record.subject, target: "deployed" } as const;
  const loadPoints = record.loadPoints.map((point) => ({ ...point, invalid: [] }));
  const { choices } = verdictOf({ ...record, subject, loadPoints });
  const judged = choices.filter(({ goal }) => goal !== "cost");
  expect(judged.map(({ goal, ties }) => [goal, ties.length])).toEqual([
    ["latency", 1],
    ["throughput", 1],
  ]);
});
