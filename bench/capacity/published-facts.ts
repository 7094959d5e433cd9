import { type PublishedFile, readPublished } from "./published.ts";
import {
  computeTime,
  ownDecodeMs,
  type Peaks,
  type PublishedParameters,
  publishedParameters,
} from "./published-parameters.ts";
import type { ServiceTimes } from "./scenario.ts";

/** The published figures, and what was taken from them. */
export interface PublishedFacts {
  readonly published: ReadonlyMap<string, PublishedFile>;
  /** Of the GPU catalogue and of the published data sheets. */
  readonly peaks: Peaks;
  readonly parameters: PublishedParameters;
}

/**
 * Read the published figures and calibrate the model by them.
 *
 * @param catalogue - Peak arithmetic by GPU, in TFLOPS, of the GPU catalogue.
 */
export function publishedFacts(catalogue: Peaks): PublishedFacts {
  const published = readPublished();
  const sheets = published.get("gpu-peaks")?.figures ?? [];
  const peaks = {
    ...Object.fromEntries(sheets.map(({ gpu = "", value = Number.NaN }) => [gpu, value])),
    ...catalogue,
  };
  return { published, peaks, parameters: publishedParameters(published, peaks) };
}

/** Images that are decoded at a time, where nobody says. */
const usualDecodeWorkers = 4;

/** Times of an environment of clipstack's, as the published figures have them. */
export function publishedTimes(
  { parameters, peaks }: PublishedFacts,
  jpegBytes: number,
): ServiceTimes {
  return {
    compute: (device, backend) => computeTime(device, backend, parameters, peaks),
    measured: (device, backend) => parameters.firstImageMs[`${device}/${backend}`] !== undefined,
    decodeMsPerImage: ownDecodeMs(parameters, jpegBytes),
    decodeWorkers: usualDecodeWorkers,
    overheadMs: parameters.overheadMs,
    overheadMsPerImage: 0,
    ingestMsPerImage: parameters.ingestMsPerImage,
    jsonMsPerImage: parameters.jsonMsPerImage,
    jsonBytesPerImage: parameters.jsonBytesPerImage,
  };
}
