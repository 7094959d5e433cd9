import { median } from "../stats/statistics.ts";
import { type ComputeTime, perImageMs } from "./compute-time.ts";
import type { PublishedFile } from "./published.ts";

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
  /** Time in Triton besides input and compute, mostly the batcher's queue delay. */
  readonly overheadMs: number;
  readonly ingestMsPerImage: number;
  /** Share of the peak performance that the model alone reaches in large batches. */
  readonly sustainedShare: number;
  /** Compute time of one image by `gpu/backend`. */
  readonly firstImageMs: Readonly<Record<string, number>>;
  /** Compute time of one image by `file/backend`, for settings that differ from the GPU's best. */
  readonly settingFirstImageMs: Readonly<Record<string, number>>;
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

export const float32Bytes = 3 * 224 * 224 * 4;
export const uint8Bytes = 3 * 224 * 224;
/** Size of an embedding as 512 floats and as JSON text. */
export const responseBytes = { binary: 512 * 4, json: 10_700 } as const;

/** Decode time of a JPEG in clipstack's embed server. */
export function clipstackDecodeMs(
  { clipstackDecode }: Pick<PublishedParameters, "clipstackDecode">,
  bytes: number,
): number {
  return clipstackDecode.smallMs * (bytes / clipstackDecode.smallBytes) ** clipstackDecode.power;
}

/** Execution time on a GPU: the published time of one image or a typical one, and for larger batches from the peak. */
export function computeTime(
  { parameters, peaks }: Pick<PublishedFacts, "parameters" | "peaks">,
  gpu: string,
  backend: Backend,
  setting = "",
): ComputeTime {
  const { firstImageMs } = parameters;
  const peak = peaks[gpu];
  if (peak === undefined) throw new Error(`no peak of ${gpu}`);
  const perImage = perImageMs(backend, peak, parameters.sustainedShare);
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
