import { firstToSaturate, type StationName, stationsOf } from "../capacity/model.ts";
import { stationLimit } from "../capacity/queueing-network.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import type { Variable } from "./coordinate-search.ts";

/** Machine and model of the measured environment. */
export interface MeasuredHost {
  readonly cores: number;
  readonly maxBatch: number;
}

/**
 * Station that saturates first in the capacity model with the measured times of a closed loop, whose link is the loopback interface;
 * `undefined` if the server reports no times.
 */
export function bottleneckOf(
  { server, load, imagesPerRequest, requestBytes, responseBytes }: LoadPoint,
  { cores, maxBatch }: MeasuredHost,
): StationName | undefined {
  if (server?.inferMs === undefined || load.kind !== "closed loop") return undefined;
  const { decodeMs = 0, inferMs, averageBatch = 1, inputMs = 0, outputMs = 0 } = server;
  const msPerImage = inferMs / Math.max(1, averageBatch);
  const stations = stationsOf(
    {
      concurrency: load.concurrency,
      imagesPerRequest,
      bytesPerImage: requestBytes / imagesPerRequest,
      responseBytesPerImage: responseBytes / imagesPerRequest,
    },
    {
      link: { bandwidthMbps: 40_000, roundTripMs: 0, connections: "kept" },
      oneConnection: false,
      client: { betweenMs: 0, writeMsPerImage: 0 },
      ...(decodeMs > 0 && { decode: { msPerImage: decodeMs / imagesPerRequest, workers: cores } }),
      overheadMs: 0,
      ingestMsPerImage: (inputMs + outputMs) / imagesPerRequest,
      compute: { firstMs: msPerImage, perImageMs: msPerImage },
      maxBatch,
      instances: 1,
      gpus: 1,
      topology: "instance-group",
    },
  );
  const use = (station: (typeof stations)[number]) => 1 / stationLimit(station, load.concurrency);
  return firstToSaturate(stations, use).name as StationName;
}

/** Settings that act on decoding and on tensors in memory; the others act on the execution of the model. */
const ofDecoding = /Threads$/;

/** Settings in the order of their expected effect: first those that act on the bottleneck. */
export function orderFor(
  bottleneck: StationName | undefined,
  variables: readonly Variable[],
): readonly Variable[] {
  const isFirst = ({ setting }: Variable) => ofDecoding.test(setting) === (bottleneck === "decode");
  return [...variables.filter(isFirst), ...variables.filter((variable) => !isFirst(variable))];
}
