import { type Demand, predict, type System } from "./model.ts";
import { type PublishedFile, type PublishedLoad, publishedValue } from "./published.ts";
import {
  type Backend,
  computeTime,
  float32Bytes,
  type Peaks,
  type PublishedParameters,
  responseBytes,
} from "./published-parameters.ts";

type Published = ReadonlyMap<string, PublishedFile>;

/** Prediction of a figure with a load: latency in ms, or images or requests per second. */
export function predictFigure(
  published: Published,
  fileId: string,
  figureId: string,
  values: PublishedParameters,
  peaks: Peaks,
): number {
  const file = published.get(fileId);
  const figure = file?.figures.find(({ id }) => id === figureId);
  if (file === undefined || figure?.load === undefined) return Number.NaN;
  const { load } = figure;
  const { demand, system } = publishedCase(file, load, values, peaks);
  const { imagesPerSecond, latencyMs } = predict(demand, system);
  if (figure.quantity === "latency") return latencyMs;
  return figure.quantity === "requests" ? imagesPerSecond / load.imagesPerRequest : imagesPerSecond;
}

/** Load and system of a figure of a remote setting. */
export function publishedCase(
  file: PublishedFile,
  load: PublishedLoad,
  values: PublishedParameters,
  peaks: Peaks,
): { readonly demand: Demand; readonly system: System } {
  const backend: Backend = load.endpoint.startsWith("trt") ? "tensorrt" : "onnxruntime";
  const pytorch = load.endpoint === "pytorch-http";
  const json = load.serialization === "json";
  const gpu = file.setting.gpu ?? "";
  const bytesPerImage = pytorch ? values.jpegBytes : json ? values.jsonBytesPerImage : float32Bytes;
  return {
    demand: {
      concurrency: load.concurrency,
      imagesPerRequest: load.imagesPerRequest,
      bytesPerImage,
      responseBytesPerImage: pytorch || json ? responseBytes.json : responseBytes.binary,
    },
    system: {
      link: {
        bandwidthMbps: values.bandwidthMbps,
        roundTripMs: values.roundTripMs[file.id] ?? Number.NaN,
        connections: "new",
      },
      oneConnection: load.endpoint.endsWith("grpc"),
      client: {
        betweenMs: values.clientBetweenMs,
        writeMsPerImage: json ? values.jsonMsPerImage : 0,
      },
      // decodes and computes in one process, without Triton
      ...(pytorch ? { decode: { msPerImage: values.decodeMsPerImage, workers: 1 } } : {}),
      overheadMs: pytorch ? 0 : values.overheadMs,
      overheadMsPerImage: 0,
      ingestMsPerImage: pytorch ? 0 : values.ingestMsPerImage,
      compute: computeTime(gpu, backend, values, peaks, file.id),
      maxBatch: 32,
      instances: 1,
      gpus: file.setting.gpus ?? 1,
      topology: file.setting.topology ?? "instance-group",
    },
  };
}

/** Model of Triton's tutorial: compute times from the first two rates, 2 inferences per request, maximum batch 8. */
export function tutorialSystem(published: Published, instances: number, maxBatch: number): System {
  const two = 2000 / publishedValue(published, "triton-tutorial/none-throughput");
  const eight = 8000 / publishedValue(published, "triton-tutorial/dynamic-throughput");
  const perImage = (eight - two) / 6;
  return {
    link: { bandwidthMbps: 1e6, roundTripMs: 0, connections: "kept" },
    oneConnection: false,
    client: { betweenMs: 0, writeMsPerImage: 0 },
    overheadMs: 0,
    overheadMsPerImage: 0,
    ingestMsPerImage: 0,
    compute: { firstMs: two - perImage, perImageMs: perImage },
    maxBatch,
    instances,
    gpus: 1,
    topology: "instance-group",
  };
}

export const tutorialDemand: Demand = {
  concurrency: 16,
  imagesPerRequest: 2,
  bytesPerImage: 0,
  responseBytesPerImage: 0,
};
