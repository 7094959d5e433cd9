import { rmSync } from "node:fs";
import { join } from "node:path";
import { makeScratchFolder } from "../../artefact/scratch-folder.ts";
import type { BenchContext, BenchEvent } from "../../bench/measure/bench-events.ts";
import type { RequestedEndpoint } from "../../bench/measure/choose-endpoints.ts";
import type { BenchRecord } from "../../bench/record/bench-record.ts";
import { defaultSettings } from "../../bench/run/bench-run.ts";
import { newBenchRecord } from "../../bench/run/compose-record.ts";
import { hasEmbedApi } from "../../contract/environment.ts";
import { requireTower } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { ensureOptimised } from "../../model-tools/convert/optimise.ts";
import { projectFolder } from "../../model-tools/files/folders.ts";
import type { ReferenceItem } from "../../target/reference/reference.ts";
import type { TargetSource } from "../../target/target.ts";
import { readBenchItems } from "./bench-items.ts";
import { defaultModality, measuredModel, sharedModel, simulatedFiles } from "./bench-models.ts";
import type { BenchArguments } from "./bench-options.ts";
import { environmentsOf, sourcesOf, targetOf } from "./bench-sources.ts";
import { chooseModel } from "./choose-model.ts";

/** Prepared run of `bench` or `sweep`, before any process is started. */
export interface PreparedBench {
  readonly context: BenchContext;
  /** Filled during the run. */
  readonly record: BenchRecord;
  /** One per environment, or one for the addresses. */
  readonly sources: readonly TargetSource[];
  /** Images or texts of the parity check, with the embeddings that the local model computes for them. */
  readonly reference: readonly ReferenceItem[];
  /** Measured model. */
  readonly spec: ModelSpec;
}

export interface PrepareOptions {
  readonly environments: readonly string[];
  readonly args: BenchArguments;
  /** Endpoints to measure; if absent, all existing ones. */
  readonly endpoints?: readonly RequestedEndpoint[];
  readonly signal: AbortSignal;
  readonly hold: BenchContext["hold"];
  readonly onEvent: (event: BenchEvent) => void;
}

/** Reads the model, images, reference and targets of a run and calls `use`. */
export async function withPreparedBench<Result>(
  { environments, args, endpoints, signal, hold, onEvent }: PrepareOptions,
  use: (prepared: PreparedBench) => Promise<Result>,
): Promise<Result> {
  const startedAt = new Date();
  const phase = (text: string) => onEvent({ kind: "phase", text });
  const scratch = makeScratchFolder();
  try {
    const files = await environmentsOf(environments, args, onEvent);
    const spec = measuredModel(files, args.model);
    const tower = { spec, modality: args.modality ?? defaultModality(spec) };
    requireTower(spec, tower.modality);
    const own = args.weights === "generated" ? sharedModel(files, tower) : undefined;
    const model = await chooseModel(tower, args.weights, onEvent, own);
    const { file, subject } = model;
    const u8Model = tritonModelName(spec, "u8");
    const u8ModelFile = join(scratch, u8Model, "model.onnx");
    const wantsVariants =
      tower.modality === "image" && (endpoints === undefined || endpoints.some(isVariant));
    if (wantsVariants && targetOf(args) === "simulation") {
      phase(`make ${u8Model} of the model`);
      await ensureOptimised(spec, file, u8ModelFile);
    }
    const sources = await sourcesOf(files, args, {
      modelFiles:
        targetOf(args) === "simulation"
          ? await simulatedFiles(files, model, args.weights, onEvent)
          : undefined,
      u8ModelFile: wantsVariants ? u8ModelFile : undefined,
      endpoints,
      signal,
      onEvent,
    });

    const { items, reference, settings } = await readBenchItems(tower, file, args, phase);

    const record = await newBenchRecord({
      project: projectFolder,
      startedAt,
      target: targetOf(args),
      model: subject,
      args: process.argv.slice(2),
      settings: {
        ...defaultSettings,
        endpoints: [],
        windowSeconds: args.window,
        windows: args.windows,
        rounds: args.rounds,
        warmupSeconds: args.warmup,
        durationSeconds: args.duration,
        seed: args.seed,
        images: settings,
      },
    });
    return await use({
      context: {
        tower,
        settings: record.settings,
        items,
        workers: args.workers,
        signal,
        hold,
        onEvent,
      },
      record,
      sources,
      reference,
      spec,
    });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

const isVariant = ({ endpoint, payload }: RequestedEndpoint) =>
  !hasEmbedApi(endpoint) && (payload === "uint8" || payload === "jpeg");
