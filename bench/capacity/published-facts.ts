import { calibratePublished } from "./calibrate-published.ts";
import { readPublished } from "./published.ts";
import {
  clipstackDecodeMs,
  computeTime,
  type Peaks,
  type PublishedFacts,
} from "./published-parameters.ts";
import type { ServiceTimes } from "./scenario.ts";

/**
 * Reads the published figures and calibrates the model.
 *
 * @param catalogue - Peak performance by GPU of the GPU catalogue, in TFLOPS.
 */
export function publishedFacts(catalogue: Peaks): PublishedFacts {
  const published = readPublished();
  const sheets = published.get("gpu-peaks")?.figures ?? [];
  const peaks = {
    ...Object.fromEntries(sheets.map(({ gpu = "", value = Number.NaN }) => [gpu, value])),
    ...catalogue,
  };
  return { published, peaks, parameters: calibratePublished(published, peaks) };
}

/** Default number of images decoded concurrently. */
const usualDecodeWorkers = 4;

/** Times of a clipstack environment from the published figures. */
export function publishedTimes(facts: PublishedFacts, jpegBytes: number): ServiceTimes {
  const { parameters } = facts;
  return {
    compute: (device, backend) => computeTime(facts, device, backend),
    measured: (device, backend) => parameters.firstImageMs[`${device}/${backend}`] !== undefined,
    decodeMsPerImage: clipstackDecodeMs(parameters, jpegBytes),
    decodeWorkers: usualDecodeWorkers,
    overheadMs: parameters.overheadMs,
    overheadMsPerImage: 0,
    ingestMsPerImage: parameters.ingestMsPerImage,
    jsonMsPerImage: parameters.jsonMsPerImage,
    jsonBytesPerImage: parameters.jsonBytesPerImage,
  };
}
