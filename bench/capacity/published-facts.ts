import { gpuCatalogue } from "../../contract/gpus.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { calibratePublished } from "./calibrate-published.ts";
import { publishedModel, readPublished } from "./published.ts";
import {
  clipstackDecodeMs,
  computeTime,
  gatewayMs,
  type Peaks,
  type PublishedFacts,
  payloadBytes,
  publishedBytes,
} from "./published-parameters.ts";
import type { ServiceTimes } from "./scenario.ts";

/** FP16 peak of each GPU in the catalogue, in TFLOPS. */
const cataloguePeaks: Peaks = Object.fromEntries(
  Object.entries(gpuCatalogue).map(([name, { fp16DenseTflops }]) => [name, fp16DenseTflops]),
);

let facts: PublishedFacts | undefined;

/** Published figures, and the model calibrated with them on the first call. */
export function publishedFacts(): PublishedFacts {
  facts ??= calibratedFacts();
  return facts;
}

function calibratedFacts(): PublishedFacts {
  const published = readPublished();
  const sheets = published.get("gpu-peaks")?.figures ?? [];
  const peaks = {
    ...Object.fromEntries(sheets.map(({ gpu = "", value = Number.NaN }) => [gpu, value])),
    ...cataloguePeaks,
  };
  return { published, peaks, parameters: calibratePublished(published, peaks) };
}

/** Facts that include the peak of a declared GPU. */
export function factsOf(
  facts: PublishedFacts,
  gpu: { readonly name: string; readonly fp16DenseTflops: number } | undefined,
): PublishedFacts {
  return gpu === undefined
    ? facts
    : { ...facts, peaks: { ...facts.peaks, [gpu.name]: gpu.fp16DenseTflops } };
}

/** Times of a clipstack environment with a model, from the published figures. */
export function publishedTimes(
  facts: PublishedFacts,
  jpegBytes: number,
  spec: ModelSpec = publishedModel,
): ServiceTimes {
  const { parameters } = facts;
  const { ingestPerCore } = parameters;
  const bytes = payloadBytes(spec);
  const elements = bytes.fp32 / publishedBytes.fp32;
  return {
    model: spec.name,
    bytes,
    maxBatch: spec.batching.maximum,
    compute: (device, backend) => computeTime(facts, spec, device, backend),
    measured: (device, backend) =>
      spec.name === publishedModel.name &&
      parameters.firstImageMs[`${device}/${backend}`] !== undefined,
    decodeMsPerImage: clipstackDecodeMs(parameters, jpegBytes),
    gatewayMsPerImage: Math.max(
      0,
      gatewayMs(parameters, jpegBytes) - clipstackDecodeMs(parameters, jpegBytes),
    ),
    overheadMs: parameters.overheadMs + parameters.inputMs,
    overheadMsPerImage: 0,
    ingestPerCore: {
      ...ingestPerCore,
      ms: {
        httpFp32: ingestPerCore.ms.httpFp32 * elements,
        httpUint8: ingestPerCore.ms.httpUint8 * elements,
        grpcFp32: ingestPerCore.ms.grpcFp32 * elements,
      },
    },
    jsonMsPerImage: parameters.jsonMsPerImage * elements,
    jsonBytesPerImage: parameters.jsonBytesPerImage * elements,
  };
}
