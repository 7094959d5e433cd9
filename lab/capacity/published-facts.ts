import type { CapacityParameters, Peaks } from "../../bench/capacity/capacity-table.ts";
import { type Backend, type ComputeTime, computeTime } from "../../bench/capacity/service-times.ts";
import type { PublishedFile } from "./published.ts";

/**
 * Parameters of the model, derived from the published figures: those of services, and those of the published settings. Each is set by one
 * figure; all other figures are predicted. No figure of several clients sets a parameter.
 */
export interface PublishedParameters extends CapacityParameters {
  /** Uplink of the client in all remote settings, which share one client. */
  readonly bandwidthMbps: number;
  /** Round trip by file of published figures. */
  readonly roundTripMs: Readonly<Record<string, number>>;
  /** Client time between a response and the next request. */
  readonly clientBetweenMs: number;
  readonly jpegBytes: number;
  /** Decode time of the published PyTorch service, which decodes sequentially. */
  readonly decodeMsPerImage: number;
  /** Processor time of Pillow for an image, and the size of its file. */
  readonly pillowDecode: { readonly ms: number; readonly bytes: number };
  /** Ingest time of one Triton server per float32 image in place of the measured one; see `identifiability.ts`. */
  readonly assumedIngestMs?: number;
  /** Compute time of one image by `file/backend`, for settings that differ from the GPU's best. */
  readonly settingFirstImageMs: Readonly<Record<string, number>>;
}

/** Published figures and the derived parameters. */
export interface PublishedFacts {
  readonly published: ReadonlyMap<string, PublishedFile>;
  /** Peaks of the GPU catalogue and of `gpu-peaks.json`. */
  readonly peaks: Peaks;
  readonly parameters: PublishedParameters;
}

/** Execution time of the published model on a GPU, in a published setting if it has a time of its own. */
export function publishedComputeTime(
  { parameters, peaks }: Pick<PublishedFacts, "parameters" | "peaks">,
  gpu: string,
  backend: Backend,
  setting = "",
): ComputeTime {
  const time = computeTime(parameters, peaks, gpu, backend);
  const firstMs = parameters.settingFirstImageMs[`${setting}/${backend}`] ?? time.firstMs;
  return { ...time, firstMs };
}
