import {
  arithmeticByOperator,
  type ComputeTime,
  modelOnlyRate,
  perImageMs,
} from "./compute-time.ts";
import { type Demand, predict, type System } from "./model.ts";
import {
  figuresOf,
  type PublishedFile,
  type PublishedLoad,
  publishedFigure,
  publishedValue,
} from "./published.ts";

/**
 * Parameters of the model, derived from the published figures. Each is set by one figure; all other figures are predicted. No
 * figure of several clients sets a parameter.
 */
export interface Parameter {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly meaning: string;
  /** Source figures (`file/id`) or a description of the source. */
  readonly from: readonly string[];
}

export type Backend = "onnxruntime" | "tensorrt";

export interface PublishedParameters {
  /** Uplink of the client in all remote settings, which share one client. */
  readonly bandwidthMbps: number;
  /** Round trip by file of published figures. */
  readonly roundTripMs: Readonly<Record<string, number>>;
  readonly clientBetweenMs: number;
  readonly jsonMsPerImage: number;
  readonly jsonBytesPerImage: number;
  readonly jpegBytes: number;
  /** Decode time of the published PyTorch service, which decodes sequentially. */
  readonly decodeMsPerImage: number;
  /** Decode time of clipstack's embed server for a 10 kB JPEG, and the exponent of its growth with size. */
  readonly ownDecode: {
    readonly smallMs: number;
    readonly smallBytes: number;
    readonly power: number;
  };
  readonly overheadMs: number;
  readonly ingestMsPerImage: number;
  /** Share of the peak performance that the model alone reaches in large batches. */
  readonly sustainedShare: number;
  /** Compute time of one image by `gpu/backend`. */
  readonly firstImageMs: Readonly<Record<string, number>>;
  /** Compute time of one image by `file/backend`, for settings that differ from the GPU's best. */
  readonly settingFirstImageMs: Readonly<Record<string, number>>;
  /** All parameters with their sources, for display. */
  readonly list: readonly Parameter[];
}

/** Peak performance (FP16, dense) by GPU, in TFLOPS. */
export type Peaks = Readonly<Record<string, number>>;

export const float32Bytes = 3 * 224 * 224 * 4;
export const uint8Bytes = 3 * 224 * 224;
/** Size of an embedding as 512 floats and as JSON text. */
export const responseBytes = { binary: 512 * 4, json: 10_700 } as const;

type Published = ReadonlyMap<string, PublishedFile>;

/** Derives the parameters from the published figures. */
export function publishedParameters(published: Published, peaks: Peaks): PublishedParameters {
  const figure = (name: string) => publishedValue(published, name);
  const sustainedShare =
    figure("model-only/rtx-4090") / modelOnlyRate(peaks["rtx-4090"] ?? Number.NaN, 1);
  const computes = computesOf(published);
  const roundTrips = figuresOf(published, "round-trip");
  const firstMsOf = (of: Compute["of"]) =>
    Object.fromEntries(
      computes.filter((one) => one.of === of).map(({ key, name }) => [key, figure(name)]),
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
    ownDecode: {
      smallMs: small.value ?? Number.NaN,
      smallBytes: small.bytes ?? Number.NaN,
      power: Math.log(ratio(large.value, small.value)) / Math.log(ratio(large.bytes, small.bytes)),
    },
    sustainedShare,
    firstImageMs: firstMsOf("gpu"),
    settingFirstImageMs: firstMsOf("setting"),
  };

  // The remaining parameters are interdependent: iterate to a fixed point. Each step sets one value from its figure.
  let values = {
    ...fixed,
    bandwidthMbps: 200,
    clientBetweenMs: 25,
    decodeMsPerImage: 10,
    roundTripMs: Object.fromEntries(roundTrips.map(({ file }) => [file.id, 25])),
  };
  const result = (file: string, id: string, tried: Partial<typeof values>) =>
    predictFigure(published, file, id, { ...values, ...tried }, peaks);
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
    values.clientBetweenMs = Math.max(
      0,
      1000 / figure("rtx-4080-x4-remote/c1-throughput") - figure("rtx-4080-x4-remote/c1-p50"),
    );
    if (Math.abs(values.bandwidthMbps / before - 1) < 1e-9) break;
  }
  return { ...values, list: describe(published, values) };
}

type Values = Omit<PublishedParameters, "list">;

/** Compute time figure and its key in the model. */
interface Compute {
  readonly of: "gpu" | "setting";
  /** `gpu/backend` or `file/backend`. */
  readonly key: string;
  readonly name: string;
}

function computesOf(published: Published): readonly Compute[] {
  return (["gpu", "setting"] as const).flatMap((of) =>
    figuresOf(published, `${of}-compute`).map(({ file, figure, name }) => {
      const backend: Backend = figure.load?.endpoint.startsWith("trt") ? "tensorrt" : "onnxruntime";
      return { of, key: `${of === "gpu" ? file.setting.gpu : file.id}/${backend}`, name };
    }),
  );
}

function describe(published: Published, values: Values): readonly Parameter[] {
  const roundTrips = figuresOf(published, "round-trip").map(({ file, name }) => ({
    name: `round trip, ${file.id}`,
    value: values.roundTripMs[file.id] ?? Number.NaN,
    unit: "ms",
    meaning:
      "there and back between client and server; a request pays two, and one for each doubling of the window",
    from: [name],
  }));
  const computes = computesOf(published).map(({ key, name }) => ({
    name: `compute of one image, ${key}`,
    value: publishedValue(published, name),
    unit: "ms",
    meaning: "one execution of the model with batch 1",
    from: [name],
  }));
  return [
    {
      name: "bandwidth",
      value: values.bandwidthMbps,
      unit: "Mbit/s",
      meaning:
        "of the client's link, shared by all its requests; one value for all remote settings",
      from: ["a100-remote/onnx-b32"],
    },
    ...roundTrips,
    {
      name: "client's work",
      value: values.clientBetweenMs,
      unit: "ms a request",
      meaning: "between an answer and the next request, in one process; in no latency",
      from: ["rtx-4080-x4-remote/c1-throughput"],
    },
    {
      name: "JSON text",
      value: values.jsonMsPerImage,
      unit: "ms per image",
      meaning: "to write the tensor of one image as text, on the client",
      from: ["serialization/json-b32"],
    },
    {
      name: "JSON bytes",
      value: values.jsonBytesPerImage / 1e6,
      unit: "MB an image",
      meaning: "size of that text",
      from: ["serialization/json-b32-bytes"],
    },
    {
      name: "decoding",
      value: values.decodeMsPerImage,
      unit: "ms per image",
      meaning: "JPEG to tensor in the published PyTorch service, one image after the other",
      from: ["a100-remote/pytorch-b32"],
    },
    {
      name: "decoding, clipstack's own server",
      value: values.ownDecode.smallMs,
      unit: "ms per image",
      meaning: "JPEG of 10 kB to tensor; what questions take",
      from: ["clipstack-decoding/small"],
    },
    {
      name: "its growth",
      value: values.ownDecode.power,
      unit: "power of the size",
      meaning: "with which that time grows for larger files",
      from: ["clipstack-decoding/large"],
    },
    {
      name: "taking in",
      value: values.ingestMsPerImage,
      unit: "ms per image",
      meaning: "of a float32 tensor, in one Triton, one after the other",
      from: ["rtx-4080-x4-remote/input"],
    },
    {
      name: "server overhead",
      value: values.overheadMs,
      unit: "ms a request",
      meaning: "in Triton beside input and compute: mostly the batcher's queue delay",
      from: ["a100-remote/onnx-overhead"],
    },
    ...computes,
    {
      name: "sustained share",
      value: values.sustainedShare,
      unit: "of the FP16 peak",
      meaning:
        "what large batches of the model reach; it gives the time of each further image of a batch",
      from: ["model-only/rtx-4090"],
    },
    {
      name: "initial window",
      value: 14_600,
      unit: "bytes",
      meaning: "what a new connection may send before the first answer",
      from: ["RFC 6928: 10 segments of 1460 bytes; not calibrated"],
    },
  ];
}

/** Decode time of a JPEG in clipstack's embed server. */
export function ownDecodeMs({ ownDecode }: Pick<Values, "ownDecode">, bytes: number): number {
  return ownDecode.smallMs * (bytes / ownDecode.smallBytes) ** ownDecode.power;
}

/** Prediction of a figure with a load: latency in ms, or images or requests per second. */
export function predictFigure(
  published: Published,
  fileId: string,
  figureId: string,
  values: Values,
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
  values: Values,
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
      answerBytesPerImage: pytorch || json ? responseBytes.json : responseBytes.binary,
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

/** Execution time on a GPU: the published time of one image or a typical one, and for larger batches from the peak. */
export function computeTime(
  gpu: string,
  backend: Backend,
  values: Pick<Values, "firstImageMs" | "sustainedShare"> &
    Partial<Pick<Values, "settingFirstImageMs">>,
  peaks: Peaks,
  setting = "",
): ComputeTime {
  const { firstImageMs } = values;
  const peak = peaks[gpu];
  if (peak === undefined) throw new Error(`no peak of ${gpu}`);
  const perImage = perImageMs(backend, peak, values.sustainedShare);
  const firstMs =
    values.settingFirstImageMs?.[`${setting}/${backend}`] ??
    firstImageMs[`${gpu}/${backend}`] ??
    Math.max(
      Math.min(
        usualFirstMs(backend, firstImageMs),
        slowerGpusMs(peak, backend, firstImageMs, peaks),
      ),
      perImage,
    );
  return { firstMs, perImageMs: perImage };
}

/** Minimum published time of GPUs with no higher peak, an upper bound for a faster GPU. */
function slowerGpusMs(
  peak: number,
  backend: Backend,
  firstImageMs: Values["firstImageMs"],
  peaks: Peaks,
): number {
  const known = Object.entries(firstImageMs).filter(([key]) => {
    const [gpu = "", of] = key.split("/");
    return of === backend && (peaks[gpu] ?? Number.POSITIVE_INFINITY) <= peak;
  });
  return Math.min(...known.map(([, ms]) => ms));
}

/** Typical time for a GPU without figures: the median of the others. */
export function usualFirstMs(backend: Backend, firstImageMs: Values["firstImageMs"]): number {
  const known = Object.entries(firstImageMs)
    .filter(([key]) => key.endsWith(`/${backend}`))
    .map(([, ms]) => ms)
    .sort((a, b) => a - b);
  return known[Math.floor(known.length / 2)] ?? Number.NaN;
}

/** Share of an operator in the arithmetic, in per cent. */
export function arithmeticShare(operator: string): number {
  const all = arithmeticByOperator();
  const sum = Object.values(all).reduce((a, b) => a + b, 0);
  return (100 * (all[operator] ?? 0)) / sum;
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
  answerBytesPerImage: 0,
};

/** Argument at which a monotonic function has a value, by bisection; the nearer end if there is none. */
export function solve(
  target: number,
  [low, high]: readonly [number, number],
  value: (x: number) => number,
): number {
  const rising = value(high) > value(low);
  let [a, b] = [low, high];
  for (let step = 0; step < 50; step++) {
    const middle = (a + b) / 2;
    if (value(middle) < target === rising) a = middle;
    else b = middle;
  }
  return (a + b) / 2;
}
