import type { IngestPerCore, Peaks } from "../../bench/capacity/capacity-table.ts";
import { type Backend, modelOnlyRate } from "../../bench/capacity/service-times.ts";
import { solve } from "../../bench/stats/bisection.ts";
import { mean } from "../../target/stats/statistics.ts";
import { predictFigure } from "./predict-figure.ts";
import {
  figuresOf,
  type PublishedFile,
  publishedFigure,
  publishedTower,
  publishedValue,
} from "./published.ts";
import type { PublishedParameters } from "./published-facts.ts";

type Published = ReadonlyMap<string, PublishedFile>;

/** Derives the parameters from the published figures. */
export function calibratePublished(
  published: Published,
  peaks: Peaks,
  assumed: Pick<PublishedParameters, "assumedIngestMs"> = {},
): PublishedParameters {
  const direct = { ...directParameters(published, peaks), ...assumed };
  const roundTrips = figuresOf(published, "round-trip");
  const figure = (name: string) => publishedValue(published, name);
  const bandwidth = available(published, "a100-remote/onnx-b32", "rtx-4080-remote/throughput");
  const decoding = available(published, "a100-remote/pytorch-b32", "a100-protocols/pytorch-b32");

  // The remaining parameters are interdependent: iterate to a fixed point. Each step sets one value from its figure.
  let values = {
    ...direct,
    bandwidthMbps: 200,
    decodeMsPerImage: 10,
    roundTripMs: Object.fromEntries(roundTrips.map(({ file }) => [file.id, 25])),
  };
  const result = (name: string, tried: Partial<typeof values>) =>
    predictFigure({ published, peaks, parameters: { ...values, ...tried } }, name);
  for (let pass = 0; pass < 25; pass++) {
    const before = values.bandwidthMbps;
    for (const { file, name } of roundTrips) {
      const found = solve(figure(name), [0.01, 2000], (ms) =>
        result(name, { roundTripMs: { ...values.roundTripMs, [file.id]: ms } }),
      );
      values = { ...values, roundTripMs: { ...values.roundTripMs, [file.id]: found } };
    }
    values.decodeMsPerImage = solve(figure(decoding), [0.01, 100], (ms) =>
      result(decoding, { decodeMsPerImage: ms }),
    );
    values.bandwidthMbps = solve(figure(bandwidth), [1, 10_000], (mbps) =>
      result(bandwidth, { bandwidthMbps: mbps }),
    );
    if (Math.abs(values.bandwidthMbps / before - 1) < 1e-9) break;
  }
  return values;
}

/** First of several figures that is present: without the file of the first, another one calibrates the parameter. */
function available(published: Published, ...names: readonly string[]): string {
  return names.find((name) => published.has(name.split("/")[0] ?? "")) ?? names[0] ?? "";
}

type DirectParameters = Omit<
  PublishedParameters,
  "bandwidthMbps" | "decodeMsPerImage" | "roundTripMs"
>;

/** Parameters that each follow from one figure. Those of the published client and its link are calibrated later. */
export function directParameters(published: Published, peaks: Peaks): DirectParameters {
  const figure = (...names: readonly string[]) =>
    publishedValue(published, available(published, ...names));
  /** Compute times of one image by `gpu/backend`, or by `file/backend` for one published setting alone. */
  const firstImageMs = (scope: "gpu" | "setting") =>
    Object.fromEntries(
      figuresOf(published, `${scope}-compute`).map(({ file, figure: { load }, name }) => {
        const backend: Backend = load?.endpoint.startsWith("trt") ? "tensorrt" : "onnxruntime";
        return [`${scope === "gpu" ? file.setting.gpu : file.id}/${backend}`, figure(name)];
      }),
    );
  const small = publishedFigure(published, "clipstack-decoding/small");
  const large = publishedFigure(published, "clipstack-decoding/large");
  const ratio = (one?: number, other?: number) => (one ?? Number.NaN) / (other ?? Number.NaN);
  const smallMs = small.value ?? Number.NaN;
  const input = figure("rtx-4080-x4-remote/input", "rtx-a4000-server/onnx-input");
  const overhead = published.has("a100-remote")
    ? figure("a100-remote/onnx-overhead")
    : figure("rtx-a4000-server/onnx-request") - figure("rtx-a4000-server/onnx-compute");
  return {
    jpegBytes: figure("serialization/jpeg-image") * 1000,
    jsonMsPerImage: figure("serialization/json-b32") / 32,
    jsonBytesPerImage: (figure("serialization/json-b32-bytes") * 1e6) / 32,
    inputMs: input,
    overheadMs: overhead - input,
    gateway: {
      measured: ["small", "photo", "large"].map((id) => ({
        bytes: publishedFigure(published, `clipstack-gateway/${id}`).bytes ?? Number.NaN,
        ms: figure(`clipstack-gateway/${id}`),
      })),
      floatMs: figure("clipstack-gateway/small-fp32") - figure("clipstack-gateway/small"),
    },
    pillowDecode: {
      ms: figure("clipstack-ingest/pillow-decode"),
      bytes: publishedFigure(published, "clipstack-ingest/pillow-decode").bytes ?? Number.NaN,
    },
    ingestPerCore: ingestPerCore((id) => figure(`clipstack-ingest/${id}`)),
    clipstackDecode: {
      smallMs,
      smallBytes: small.bytes ?? Number.NaN,
      power: Math.log(ratio(large.value, small.value)) / Math.log(ratio(large.bytes, small.bytes)),
    },
    // no other figure reveals it
    clientBetweenMs: published.has("rtx-4080-x4-remote")
      ? Math.max(
          0,
          1000 / figure("rtx-4080-x4-remote/c1-throughput") - figure("rtx-4080-x4-remote/c1-p50"),
        )
      : 0,
    sustainedShare:
      figure("model-only/rtx-4090") /
      modelOnlyRate(publishedTower, peaks["rtx-4090"] ?? Number.NaN, 1),
    firstImageMs: firstImageMs("gpu"),
    settingFirstImageMs: firstImageMs("setting"),
  };
}

function ingestPerCore(figure: (id: string) => number): IngestPerCore {
  const payloads = ["http-fp32", "http-uint8", "grpc-fp32"] as const;
  // processor time that grows with the number of cores is lost to contention
  const growth = mean(payloads.map((id) => Math.log2(figure(`${id}-2`) / figure(`${id}-1`))));
  const [httpFp32, httpUint8, grpcFp32] = payloads.map((id) => figure(`${id}-1`));
  return {
    ms: {
      httpFp32: httpFp32 ?? Number.NaN,
      httpUint8: httpUint8 ?? Number.NaN,
      grpcFp32: grpcFp32 ?? Number.NaN,
    },
    scaling: Math.min(1, 1 - growth),
    measuredCores: 2,
  };
}
