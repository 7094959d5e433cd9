import { type Demand, predict, type System } from "../../bench/capacity/model.ts";
import { typicalCoresPerGpu } from "../../bench/capacity/scenario.ts";
import { type Backend, ingestMs, publishedBytes } from "../../bench/capacity/service-times.ts";
import { median } from "../../target/stats/statistics.ts";
import {
  type Figure,
  type PublishedFile,
  type PublishedLoad,
  publishedValue,
} from "./published.ts";
import { type PublishedFacts, publishedComputeTime } from "./published-facts.ts";

/** Prediction of a figure with a load: latency in ms, or images or requests per second. */
export function predictFigure(facts: PublishedFacts, name: string): number {
  const [fileId = "", figureId = ""] = name.split("/");
  const file = facts.published.get(fileId);
  const figure = file?.figures.find(({ id }) => id === figureId);
  if (file === undefined || figure?.load === undefined) return Number.NaN;
  const { load } = figure;
  const { demand, system } = publishedCase(facts, file, load);
  const { imagesPerSecond, latencyMs } = predict(demand, system);
  if (figure.quantity === "latency") return latencyMs;
  return figure.quantity === "requests" ? imagesPerSecond / load.imagesPerRequest : imagesPerSecond;
}

/** Load and system of a figure of a remote setting. */
export function publishedCase(
  facts: PublishedFacts,
  file: PublishedFile,
  load: PublishedLoad,
): { readonly demand: Demand; readonly system: System } {
  const { parameters } = facts;
  const backend: Backend = load.endpoint.startsWith("trt") ? "tensorrt" : "onnxruntime";
  const pytorch = load.endpoint === "pytorch-http";
  const json = load.serialization === "json";
  const gpu = file.setting.gpu ?? "";
  const bytesPerImage = pytorch
    ? parameters.jpegBytes
    : json
      ? parameters.jsonBytesPerImage
      : publishedBytes.fp32;
  return {
    demand: {
      concurrency: load.concurrency,
      imagesPerRequest: load.imagesPerRequest,
      bytesPerImage,
      responseBytesPerImage:
        pytorch || json ? publishedBytes.embedding.json : publishedBytes.embedding.binary,
    },
    system: {
      link: {
        bandwidthMbps: parameters.bandwidthMbps,
        roundTripMs:
          parameters.roundTripMs[file.id] ??
          median(Object.values(parameters.roundTripMs)) ??
          Number.NaN,
        connections: "new",
      },
      oneConnection: load.endpoint.endsWith("grpc"),
      client: {
        betweenMs: parameters.clientBetweenMs,
        writeMsPerImage: json ? parameters.jsonMsPerImage : 0,
      },
      // decodes and computes in one process, without Triton
      ...(pytorch ? { decode: { msPerImage: parameters.decodeMsPerImage, workers: 1 } } : {}),
      overheadMs: pytorch ? 0 : parameters.overheadMs + parameters.inputMs,
      ingestMsPerImage: pytorch
        ? 0
        : (parameters.assumedIngestMs ??
          ingestMs(
            load.endpoint.endsWith("grpc") ? "grpcFp32" : "httpFp32",
            parameters.ingestPerCore,
            typicalCoresPerGpu * (file.setting.gpus ?? 1),
          )),
      compute: publishedComputeTime(facts, gpu, backend, file.id),
      maxBatch: 32,
      instances: 1,
      gpus: file.setting.gpus ?? 1,
      topology: file.setting.topology ?? "instance-group",
    },
  };
}

/** Limit of a program that decodes images with Pillow in several processes per GPU and computes large batches. */
export function predictBulk(
  facts: PublishedFacts,
  { setting }: PublishedFile,
  { bytes = Number.NaN, gpus = 1 }: Figure,
): number {
  const { pillowDecode, clipstackDecode } = facts.parameters;
  const { gpu = "", cores = Number.POSITIVE_INFINITY, decodeWorkers = 1 } = setting;
  const msPerImage = pillowDecode.ms * (bytes / pillowDecode.bytes) ** clipstackDecode.power;
  const none = { bytesPerImage: 0, responseBytesPerImage: 0 };
  const { limitImagesPerSecond } = predict(
    { ...none, concurrency: 1, imagesPerRequest: 32 },
    {
      ...idleSystem,
      decode: { msPerImage, workers: Math.min(gpus * decodeWorkers, cores) },
      compute: publishedComputeTime(facts, gpu, "tensorrt"),
      maxBatch: 32,
      gpus,
    },
  );
  return limitImagesPerSecond;
}

/** Local client, link and server that take no time. */
const idleSystem = {
  link: { bandwidthMbps: 1e6, roundTripMs: 0, connections: "kept" },
  oneConnection: false,
  client: { betweenMs: 0, writeMsPerImage: 0 },
  overheadMs: 0,
  ingestMsPerImage: 0,
  instances: 1,
  gpus: 1,
  topology: "instance-group",
} as const;

/** Model of Triton's tutorial: compute times from the first two rates, 2 inferences per request, maximum batch 8. */
export function tutorialSystem(
  { published }: Pick<PublishedFacts, "published">,
  instances: number,
  maxBatch: number,
): System {
  const two = 2000 / publishedValue(published, "triton-tutorial/none-throughput");
  const eight = 8000 / publishedValue(published, "triton-tutorial/dynamic-throughput");
  const perImage = (eight - two) / 6;
  return {
    ...idleSystem,
    compute: { firstMs: two - perImage, perImageMs: perImage },
    maxBatch,
    instances,
  };
}

export const tutorialDemand: Demand = {
  concurrency: 16,
  imagesPerRequest: 2,
  bytesPerImage: 0,
  responseBytesPerImage: 0,
};
