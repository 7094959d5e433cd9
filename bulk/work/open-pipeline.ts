import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { createPreprocessor } from "../../inference/preprocess/preprocess.ts";
import { openEmbedder } from "./embedder.ts";
import { Pipeline } from "./pipeline.ts";
import type { BulkEnv } from "./settings.ts";

/** Bytes per decoded pixel: RGB, and what libvips holds while it decodes a WebP or progressive JPEG file. */
const bytesPerPixel = 7;

export interface OpenPipeline {
  readonly pipeline: Pipeline;
  /** Of the model, its precision and the preprocessing. */
  readonly fingerprint: string;
  /** Images of a full batch. */
  readonly batchSize: number;
  close(): Promise<void>;
}

/**
 * Opens the model and the decoders of a worker.
 *
 * @throws {UserError} as {@link openEmbedder}
 */
export async function openPipeline(model: ModelSpec, env: BulkEnv): Promise<OpenPipeline> {
  const embedder = await openEmbedder(model, env);
  // a quarter for files and model input; the rest for decoded pixels: 40 MP with the default
  const memoryBytes = (env.BULK_MEMORY_MIB * 2 ** 20) / 4;
  const preprocessor = createPreprocessor({
    maxPixels: env.MAX_IMAGE_PIXELS,
    mode: env.PREPROCESSING,
    threads: env.PREPROCESS_THREADS,
    timeoutMs: env.DECODE_TIMEOUT_MS,
    maxPixelsInFlight: (3 * memoryBytes) / bytesPerPixel,
  });
  const pipeline = new Pipeline({
    embedder,
    preprocessor,
    input: imageTowerOf(model).input,
    memoryBytes,
    reads: env.BULK_READS,
  });
  return {
    pipeline,
    fingerprint: embedder.fingerprint,
    batchSize: embedder.maxBatchSize,
    close: async () => void (await Promise.allSettled([preprocessor.close(), embedder.close()])),
  };
}
