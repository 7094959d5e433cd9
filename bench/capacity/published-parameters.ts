import { imageBytes, imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { median } from "../stats/statistics.ts";
import { type ComputeTime, perImageMs } from "./compute-time.ts";
import { type PublishedFile, publishedModel, publishedTower } from "./published.ts";

export type Backend = "onnxruntime" | "tensorrt";

/**
 * Parameters of the model, derived from the published figures. Each is set by one figure; all other figures are predicted. No
 * figure of several clients sets a parameter.
 */
export interface PublishedParameters {
  /** Uplink of the client in all remote settings, which share one client. */
  readonly bandwidthMbps: number;
  /** Round trip by file of published figures. */
  readonly roundTripMs: Readonly<Record<string, number>>;
  /** Client time between a response and the next request. */
  readonly clientBetweenMs: number;
  /** Time to encode the tensor of one image as JSON text, and the size of that text. */
  readonly jsonMsPerImage: number;
  readonly jsonBytesPerImage: number;
  readonly jpegBytes: number;
  /** Decode time of the published PyTorch service, which decodes sequentially. */
  readonly decodeMsPerImage: number;
  /** Decode time of clipstack's embed server for a 10 kB JPEG, and the exponent of its growth with size. */
  readonly clipstackDecode: {
    readonly smallMs: number;
    readonly smallBytes: number;
    readonly power: number;
  };
  /** Processor time of clipstack's gateway per JPEG by its size, decoding included, and the addition for float32 instead of 8-bit pixels. */
  readonly gateway: {
    readonly measured: readonly { readonly bytes: number; readonly ms: number }[];
    readonly floatMs: number;
  };
  /** Processor time of Pillow for an image, and the size of its file. */
  readonly pillowDecode: { readonly ms: number; readonly bytes: number };
  /** Time in Triton besides input and compute, mostly the batcher's queue delay. */
  readonly overheadMs: number;
  /** Time per request in which Triton's backend copies the input. */
  readonly inputMs: number;
  readonly ingestPerCore: IngestPerCore;
  /** Ingest time of one Triton per float32 image in place of the measured one; see `identifiability.ts`. */
  readonly assumedIngestMs?: number;
  /** Share of the peak performance that the model alone reaches in large batches. */
  readonly sustainedShare: number;
  /** Compute time of one image by `gpu/backend`. */
  readonly firstImageMs: Readonly<Record<string, number>>;
  /** Compute time of one image by `file/backend`, for settings that differ from the GPU's best. */
  readonly settingFirstImageMs: Readonly<Record<string, number>>;
}

/** Processor time of Triton per image of the published model, measured with a backend that computes nothing. */
export interface IngestPerCore {
  readonly ms: {
    readonly httpFp32: number;
    readonly httpUint8: number;
    readonly grpcFp32: number;
  };
  /** Exponent of the number of cores of one Triton, at most 1. */
  readonly scaling: number;
  /** Maximum number of cores in the measurement. */
  readonly measuredCores: number;
}

/** Cores of a host per GPU, if unknown. */
export const typicalCoresPerGpu = 8;

/** Ingest time per image of one Triton with several cores. */
export function ingestMs(
  payload: keyof IngestPerCore["ms"],
  { ms, scaling }: IngestPerCore,
  cores: number,
): number {
  return ms[payload] / (cores <= 1 ? cores : cores ** scaling);
}

/** Peak performance (FP16, dense) by GPU, in TFLOPS. */
export type Peaks = Readonly<Record<string, number>>;

/** Published figures and the derived parameters. */
export interface PublishedFacts {
  readonly published: ReadonlyMap<string, PublishedFile>;
  /** Peaks of the GPU catalogue and of `gpu-peaks.json`. */
  readonly peaks: Peaks;
  readonly parameters: PublishedParameters;
}

/** Bytes of one image and of its embedding in a request and response. */
export interface PayloadBytes {
  readonly fp32: number;
  readonly uint8: number;
  readonly embedding: { readonly binary: number; readonly json: number };
}

/** Bytes of one float32 of an embedding as JSON text: 10.7 kB for an embedding of the published model. */
const jsonBytesPerValue = 10_700 / publishedModel.embedding.width;

export function payloadBytes(spec: ModelSpec): PayloadBytes {
  const tower = imageTowerOf(spec);
  const { width } = spec.embedding;
  return {
    fp32: imageBytes(tower, "fp32") ?? Number.NaN,
    uint8: imageBytes(tower, "uint8") ?? Number.NaN,
    embedding: { binary: width * 4, json: width * jsonBytesPerValue },
  };
}

export const publishedBytes = payloadBytes(publishedModel);

/** Decode time of a JPEG in clipstack's embed server. */
export function clipstackDecodeMs(
  { clipstackDecode }: Pick<PublishedParameters, "clipstackDecode">,
  bytes: number,
): number {
  return clipstackDecode.smallMs * (bytes / clipstackDecode.smallBytes) ** clipstackDecode.power;
}

/** Processor time of clipstack's gateway for a JPEG that it sends as float32: a power of the size between two measured sizes. */
export function gatewayMs(
  { gateway: { measured, floatMs } }: Pick<PublishedParameters, "gateway">,
  bytes: number,
): number {
  const upper = Math.max(
    1,
    measured.findIndex((it) => it.bytes >= bytes),
  );
  const last = measured.length - 1;
  const to = bytes > (measured[last]?.bytes ?? 0) ? last : upper;
  const [a, b] = [measured[to - 1], measured[to]];
  if (a === undefined || b === undefined) throw new Error("two measured sizes are required");
  const power = Math.log(b.ms / a.ms) / Math.log(b.bytes / a.bytes);
  return a.ms * (bytes / a.bytes) ** power + floatMs;
}

/** Execution time of the published model on a GPU: the published time of one image or a typical one, and for larger batches from the peak. */
export function publishedComputeTime(
  { parameters, peaks }: Pick<PublishedFacts, "parameters" | "peaks">,
  gpu: string,
  backend: Backend,
  setting = "",
): ComputeTime {
  const { firstImageMs } = parameters;
  const peak = peaks[gpu];
  if (peak === undefined) throw new Error(`no peak of ${gpu}`);
  const perImage = perImageMs(publishedTower, backend, peak, parameters.sustainedShare);
  const firstMs =
    parameters.settingFirstImageMs[`${setting}/${backend}`] ??
    firstImageMs[`${gpu}/${backend}`] ??
    Math.max(
      Math.min(
        medianFirstMs(backend, firstImageMs),
        slowerGpusMs(peak, backend, firstImageMs, peaks),
      ),
      perImage,
    );
  return { firstMs, perImageMs: perImage };
}

/**
 * Execution time of any model on a GPU. For a model without published figures the arithmetic is its own, and the rest of the time of
 * the first image is that of the published model.
 */
export function computeTime(
  facts: Pick<PublishedFacts, "parameters" | "peaks">,
  spec: ModelSpec,
  gpu: string,
  backend: Backend,
): ComputeTime {
  const published = publishedComputeTime(facts, gpu, backend);
  if (spec.name === publishedModel.name) return published;
  const peak = facts.peaks[gpu] ?? Number.NaN;
  const perImage = perImageMs(imageTowerOf(spec), backend, peak, facts.parameters.sustainedShare);
  return {
    firstMs: published.firstMs - published.perImageMs + perImage,
    perImageMs: perImage,
  };
}

/** Minimum published time of GPUs with no higher peak, an upper bound for a faster GPU. */
function slowerGpusMs(
  peak: number,
  backend: Backend,
  firstImageMs: PublishedParameters["firstImageMs"],
  peaks: Peaks,
): number {
  const known = Object.entries(firstImageMs).filter(([key]) => {
    const [gpu = "", of] = key.split("/");
    return of === backend && (peaks[gpu] ?? Number.POSITIVE_INFINITY) <= peak;
  });
  return Math.min(...known.map(([, ms]) => ms));
}

/** Typical time for a GPU without figures: the median of the others. */
function medianFirstMs(
  backend: Backend,
  firstImageMs: PublishedParameters["firstImageMs"],
): number {
  const known = Object.entries(firstImageMs).filter(([key]) => key.endsWith(`/${backend}`));
  return median(known.map(([, ms]) => ms)) ?? Number.NaN;
}
