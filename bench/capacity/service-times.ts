import { gpuCatalogue } from "../../contract/gpus.ts";
import { gigaFlopsPerItem, imageBytes, imageTowerOf } from "../../contract/model-shapes.ts";
import type { ImageTower, ModelSpec } from "../../contract/model-spec.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { median } from "../../target/stats/statistics.ts";
import {
  type CapacityParameters,
  capacityTable,
  type IngestPerCore,
  type Peaks,
} from "./capacity-table.ts";

export type Backend = "onnxruntime" | "tensorrt";

/** Model of all published figures. */
export const publishedModel = openclipVitB32;
const publishedTower = imageTowerOf(publishedModel);

/** Execution time by batch size: `firstMs` for one image plus `perImageMs` per additional image. */
export interface ComputeTime {
  readonly firstMs: number;
  readonly perImageMs: number;
}

/** Bytes of one image and of its embedding in a request and response. */
export interface PayloadBytes {
  readonly fp32: number;
  readonly uint8: number;
  readonly embedding: { readonly binary: number; readonly json: number };
}

export interface ServiceTimes {
  /** Name of the model. */
  readonly model: string;
  readonly bytes: PayloadBytes;
  readonly maxBatch: number;
  readonly compute: (device: string, backend: Backend) => ComputeTime;
  /** Returns whether the device's compute time was measured instead of derived from its peak performance. */
  readonly measured: (device: string, backend: Backend) => boolean;
  readonly decodeMsPerImage: number;
  /** Processor time of the embed server per image, besides decoding. */
  readonly gatewayMsPerImage: number;
  /** Images decoded concurrently. @default - the cores of the host, less those for ingest */
  readonly decodeWorkers?: number;
  readonly overheadMs: number;
  /**
   * Time in which one Triton server receives a float32 tensor, independent of its cores. Smaller tensors take proportionally less.
   *
   * @default - follows from `ingestPerCore`
   */
  readonly ingestMsPerImage?: number;
  /** Processor time of Triton per image. */
  readonly ingestPerCore: IngestPerCore;
  /** Whether the embed server runs the model itself, so that no Triton server ingests its tensors. */
  readonly embedComputes?: boolean;
  readonly jsonMsPerImage: number;
  readonly jsonBytesPerImage: number;
}

export function executionMs({ firstMs, perImageMs }: ComputeTime, images: number): number {
  return firstMs + perImageMs * Math.max(0, images - 1);
}

/** Images per second of the model alone in large batches, at `sustainedShare` of the peak. */
export function modelOnlyRate(
  tower: ImageTower,
  fp16DenseTflops: number,
  sustainedShare: number,
): number {
  return (fp16DenseTflops * 1000 * sustainedShare) / gigaFlopsPerItem(tower);
}

/** Ingest time per image of one Triton server with several cores. */
export function ingestMs(
  payload: keyof IngestPerCore["ms"],
  { ms, scaling }: IngestPerCore,
  cores: number,
): number {
  return ms[payload] / (cores <= 1 ? cores : cores ** scaling);
}

/** Bytes of one float32 of an embedding as JSON text: 10.7 kB for an embedding of the published model. */
const jsonBytesPerValue = 10_700 / publishedModel.embedding.width;

function payloadBytes(spec: ModelSpec): PayloadBytes {
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
  { clipstackDecode }: Pick<CapacityParameters, "clipstackDecode">,
  bytes: number,
): number {
  return clipstackDecode.smallMs * (bytes / clipstackDecode.smallBytes) ** clipstackDecode.power;
}

/** Processor time of clipstack's gateway for a JPEG that it sends to Triton as float32, interpolated between two measured sizes as a power of the size. */
export function gatewayMs(
  { gateway: { measured, floatMs } }: Pick<CapacityParameters, "gateway">,
  bytes: number,
): number {
  const larger = measured.findIndex((it) => it.bytes >= bytes);
  const to = larger < 0 ? measured.length - 1 : Math.max(1, larger);
  const [a, b] = [measured[to - 1], measured[to]];
  if (a === undefined || b === undefined) throw new Error("two measured sizes are required");
  const power = Math.log(b.ms / a.ms) / Math.log(b.bytes / a.bytes);
  return a.ms * (bytes / a.bytes) ** power + floatMs;
}

/** Sizes of the published JPEG files: a thumbnail of 320 × 240 and a photo of 1600 × 1200. */
export const thumbnailBytes = 10_000;
export const photoBytes = 300_000;

/** JPEG files per second of the embed server on one core, as a gateway that sends float32 tensors to a Triton server. */
export function gatewayRatePerCore(jpegBytes: number): number {
  return 1_000 / gatewayMs(capacityTable.parameters, jpegBytes);
}

/** Number of cores with which the gateway keeps up with `imagesPerSecond`, such as those of a GPU. */
export function gatewayCores(imagesPerSecond: number, jpegBytes: number): number {
  return Math.ceil(imagesPerSecond / gatewayRatePerCore(jpegBytes));
}

export const cataloguePeaks: Peaks = Object.fromEntries(
  Object.entries(gpuCatalogue).map(([name, { fp16DenseTflops }]) => [name, fp16DenseTflops]),
);

/**
 * Execution time of a model on a GPU. TensorRT runs in FP16; ONNX Runtime's CUDA provider in TF32, which has half the throughput on
 * tensor cores. One image of the published model takes the published time, otherwise the median of the published times, at most the time of
 * any GPU with a lower peak. For another model the arithmetic is its own, and the rest of the time of the first image that of the published model.
 */
export function computeTime(
  { firstImageMs, sustainedShare }: Pick<CapacityParameters, "firstImageMs" | "sustainedShare">,
  peaks: Peaks,
  gpu: string,
  backend: Backend,
  spec: ModelSpec = publishedModel,
): ComputeTime {
  const peak = peaks[gpu];
  if (peak === undefined) throw new Error(`no peak of ${gpu}`);
  const perImageMs = (tower: ImageTower) =>
    (backend === "onnxruntime" ? 2000 : 1000) / modelOnlyRate(tower, peak, sustainedShare);
  const published = perImageMs(publishedTower);
  const known = Object.entries(firstImageMs).filter(([key]) => key.endsWith(`/${backend}`));
  const typicalMs = () => median(known.map(([, ms]) => ms)) ?? Number.NaN;
  const ofSlowerGpus = known.filter(
    ([key]) => (peaks[key.split("/")[0] ?? ""] ?? Number.POSITIVE_INFINITY) <= peak,
  );
  const firstMs =
    firstImageMs[`${gpu}/${backend}`] ??
    Math.max(Math.min(typicalMs(), ...ofSlowerGpus.map(([, ms]) => ms)), published);
  if (spec.name === publishedModel.name) return { firstMs, perImageMs: published };
  const own = perImageMs(imageTowerOf(spec));
  return { firstMs: firstMs - published + own, perImageMs: own };
}

/** Times of a clipstack environment with a model, from the published figures. */
export function publishedTimes(
  jpegBytes: number,
  spec: ModelSpec = publishedModel,
  /** GPU that the catalogue may lack. */
  gpu?: { readonly name: string; readonly fp16DenseTflops: number },
  parameters: CapacityParameters = capacityTable.parameters,
): ServiceTimes {
  const { ingestPerCore, firstImageMs } = parameters;
  const peaks = {
    ...capacityTable.otherPeaks,
    ...cataloguePeaks,
    ...(gpu && { [gpu.name]: gpu.fp16DenseTflops }),
  };
  const bytes = payloadBytes(spec);
  const elements = bytes.fp32 / publishedBytes.fp32;
  const decodeMs = clipstackDecodeMs(parameters, jpegBytes);
  const { httpFp32, httpUint8, grpcFp32 } = ingestPerCore.ms;
  return {
    model: spec.name,
    bytes,
    maxBatch: spec.batching.maximum,
    compute: (device, backend) => computeTime(parameters, peaks, device, backend, spec),
    measured: (device, backend) =>
      spec.name === publishedModel.name && firstImageMs[`${device}/${backend}`] !== undefined,
    decodeMsPerImage: decodeMs,
    gatewayMsPerImage: Math.max(0, gatewayMs(parameters, jpegBytes) - decodeMs),
    overheadMs: parameters.overheadMs + parameters.inputMs,
    ingestPerCore: {
      ...ingestPerCore,
      ms: {
        httpFp32: httpFp32 * elements,
        httpUint8: httpUint8 * elements,
        grpcFp32: grpcFp32 * elements,
      },
    },
    jsonMsPerImage: parameters.jsonMsPerImage * elements,
    jsonBytesPerImage: parameters.jsonBytesPerImage * elements,
  };
}
