import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import type { SimulatedSource } from "../../target/open/simulation.ts";
import { readImages } from "../../target/reference/read-images.ts";
import { makeReference, readSamples, samplesFolder } from "../../target/reference/reference.ts";
import type { TargetEndpoint } from "../../target/requests/target-endpoint.ts";
import type { BenchContext } from "../measure/bench-events.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import { defaultSettings } from "./bench-run.ts";
import { newBenchRecord } from "./compose-record.ts";

/** Short runs of the tiny model, for tests. */

export const project = fileURLToPath(new URL("../../", import.meta.url));

export const testSettings: BenchRecord["settings"] = {
  ...defaultSettings,
  endpoints: [],
  rounds: 1,
  windowSeconds: 0.1,
  warmupSeconds: 0.1,
  durationSeconds: 3,
  images: { source: "samples", count: 1, meanBytes: 1 },
};

export function testContext(changes: Partial<BenchContext> = {}): BenchContext {
  return {
    tower: { spec: openclipVitB32, modality: "image" },
    settings: testSettings,
    items: [],
    signal: new AbortController().signal,
    onEvent: () => {},
    ...changes,
  };
}

export const newTestRecord = (
  target: BenchRecord["subject"]["target"],
  settings = testSettings,
): Promise<BenchRecord> =>
  newBenchRecord({
    ...{ project, startedAt: new Date(), target, settings },
    model: { name: "tiny", weights: "random" },
  });

export function testTarget(changes: Partial<TargetEndpoint> = {}): TargetEndpoint {
  return {
    environment: "single-gpu",
    service: "triton-onnx",
    endpoint: "onnx-http",
    url: "http://127.0.0.1:1",
    spec: openclipVitB32,
    modality: "image",
    model: "openclip_vit_b32",
    payloads: ["fp32"],
    metrics: [],
    pids: [],
    ...changes,
  };
}

/** Command that executes a TypeScript program of the project. */
export const sourceCommand = (program: string): readonly string[] => [
  ...[process.execPath, "--import", import.meta.resolve("tsx")],
  join(project, program),
];

/** Simulation of an artefact with the tiny model. */
export async function simulationOf(
  file: string,
  displayPath: string,
  program = "inference-image/main.ts",
): Promise<SimulatedSource> {
  return {
    kind: "simulated",
    environment: { file, displayPath, editedByHand: false },
    serverCommand: sourceCommand(program),
    modelRepository: join(project, "model_repository"),
    modelFiles: new Map([[openclipVitB32.name, { image: await tinyModel() }]]),
    portOffset: 0,
  };
}

/** The first sample images as items of a load, and with their embeddings by a model file. */
export async function testImages(count: number, file: string) {
  const { input } = imageTowerOf(openclipVitB32);
  return {
    items: (await readImages(samplesFolder, input)).slice(0, count),
    reference: await makeReference(readSamples(count), { spec: openclipVitB32, file }),
  };
}
