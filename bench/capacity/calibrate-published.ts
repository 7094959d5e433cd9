import { solve } from "../stats/bisection.ts";
import { modelOnlyRate } from "./compute-time.ts";
import { predictFigure } from "./predict-published.ts";
import {
  figuresOf,
  type PublishedFile,
  publishedFigure,
  publishedTower,
  publishedValue,
} from "./published.ts";
import type { Backend, Peaks, PublishedParameters } from "./published-parameters.ts";

type Published = ReadonlyMap<string, PublishedFile>;

/** Derives the parameters from the published figures. */
export function calibratePublished(published: Published, peaks: Peaks): PublishedParameters {
  const figure = (name: string) => publishedValue(published, name);
  const roundTrips = figuresOf(published, "round-trip");
  const firstImageMs = (scope: Scope) =>
    Object.fromEntries(
      computeFigures(published, scope).map(({ key, name }) => [key, figure(name)]),
    );
  const small = publishedFigure(published, "clipstack-decoding/small");
  const large = publishedFigure(published, "clipstack-decoding/large");
  const ratio = (one?: number, other?: number) => (one ?? Number.NaN) / (other ?? Number.NaN);
  const fixed = {
    jpegBytes: figure("serialization/jpeg-image") * 1000,
    jsonMsPerImage: figure("serialization/json-b32") / 32,
    jsonBytesPerImage: (figure("serialization/json-b32-bytes") * 1e6) / 32,
    ingestMsPerImage: figure("rtx-4080-x4-remote/input"),
    overheadMs: figure("a100-remote/onnx-overhead") - figure("rtx-4080-x4-remote/input"),
    clipstackDecode: {
      smallMs: small.value ?? Number.NaN,
      smallBytes: small.bytes ?? Number.NaN,
      power: Math.log(ratio(large.value, small.value)) / Math.log(ratio(large.bytes, small.bytes)),
    },
    clientBetweenMs: Math.max(
      0,
      1000 / figure("rtx-4080-x4-remote/c1-throughput") - figure("rtx-4080-x4-remote/c1-p50"),
    ),
    sustainedShare:
      figure("model-only/rtx-4090") /
      modelOnlyRate(publishedTower, peaks["rtx-4090"] ?? Number.NaN, 1),
    firstImageMs: firstImageMs("gpu"),
    settingFirstImageMs: firstImageMs("setting"),
  };

  // The remaining parameters are interdependent: iterate to a fixed point. Each step sets one value from its figure.
  let values = {
    ...fixed,
    bandwidthMbps: 200,
    decodeMsPerImage: 10,
    roundTripMs: Object.fromEntries(roundTrips.map(({ file }) => [file.id, 25])),
  };
  const result = (file: string, id: string, tried: Partial<typeof values>) =>
    predictFigure({ published, peaks, parameters: { ...values, ...tried } }, file, id);
  for (let pass = 0; pass < 25; pass++) {
    const before = values.bandwidthMbps;
    for (const { file, figure: single, name } of roundTrips) {
      const found = solve(figure(name), [0.01, 2000], (ms) =>
        result(file.id, single.id, { roundTripMs: { ...values.roundTripMs, [file.id]: ms } }),
      );
      values = { ...values, roundTripMs: { ...values.roundTripMs, [file.id]: found } };
    }
    values.decodeMsPerImage = solve(figure("a100-remote/pytorch-b32"), [0.01, 100], (ms) =>
      result("a100-remote", "pytorch-b32", { decodeMsPerImage: ms }),
    );
    values.bandwidthMbps = solve(figure("a100-remote/onnx-b32"), [1, 10_000], (mbps) =>
      result("a100-remote", "onnx-b32", { bandwidthMbps: mbps }),
    );
    if (Math.abs(values.bandwidthMbps / before - 1) < 1e-9) break;
  }
  return values;
}

/** Scope of a compute time: a GPU, or only one published setting. */
type Scope = "gpu" | "setting";

/** Published compute time of one image. */
interface ComputeFigure {
  /** `gpu/backend` or `file/backend`. */
  readonly key: string;
  /** `file/id` */
  readonly name: string;
}

export function computeFigures(published: Published, scope: Scope): readonly ComputeFigure[] {
  return figuresOf(published, `${scope}-compute`).map(({ file, figure, name }) => {
    const backend: Backend = figure.load?.endpoint.startsWith("trt") ? "tensorrt" : "onnxruntime";
    return { key: `${scope === "gpu" ? file.setting.gpu : file.id}/${backend}`, name };
  });
}
