import { predict } from "../../bench/capacity/model.ts";
import { costPerThousand } from "../../bench/capacity/scenario.ts";
import {
  clipstackDecodeMs,
  executionMs,
  gatewayMs,
  modelOnlyRate,
  publishedBytes,
} from "../../bench/capacity/service-times.ts";
import { median } from "../../target/stats/statistics.ts";
import { arithmeticByOperator, arithmeticShare } from "./operator-arithmetic.ts";
import {
  predictBulk,
  predictFigure,
  publishedCase,
  tutorialDemand,
  tutorialSystem,
} from "./predict-figure.ts";
import {
  type Figure,
  type PublishedFile,
  type PublishedLoad,
  publishedFigure,
  publishedTower,
  publishedValue,
} from "./published.ts";
import { type PublishedFacts, publishedComputeTime } from "./published-facts.ts";

/** Role of a published figure in the capacity model. */
export const roles = {
  predicted: "predicted from other figures; known when the model was written",
  calibrates: "sets a parameter, so the model reproduces it",
  derived: "follows from other figures by a formula",
  read: "input of the model",
  carried: "not covered by the model",
} as const;
export type Role = keyof typeof roles;

export interface CheckRow {
  /** `file/id` */
  readonly figure: string;
  readonly title: string;
  /** Location of the client. */
  readonly place: PublishedFile["setting"]["place"];
  readonly label: string;
  readonly unit: string;
  readonly role: Role;
  readonly published: { readonly low: number; readonly high: number };
  readonly predicted?: number;
  /** Error of the prediction, relative to the published value or to the nearer end of a published range; 0 within the range. */
  readonly error?: number;
  /** Fields of the load not stated by the source. */
  readonly assumed: readonly string[];
  /** Cause of the error, or the reason for a missing prediction. */
  readonly note: string;
}

/** Maximum error for a figure to count as explained by the model. */
export const explainedError = 0.25;

type Formula = (figure: (name: string) => number) => number;

/** Figures computed from others, with the source's precision. */
const formulas: Readonly<Record<string, Formula>> = {
  "serialization/binary-b32-bytes": () => (32 * publishedBytes.fp32) / 2 ** 20,
  "serialization/float32-image": () => publishedBytes.fp32,
  "a100-remote/onnx-sum": (of) =>
    of("a100-remote/onnx-compute") +
    of("a100-remote/onnx-overhead") +
    of("a100-remote/onnx-network"),
  "rtx-4080-x4-remote/scaling": (of) =>
    of("rtx-4080-x4-remote/c32-throughput") / of("rtx-4080-remote/throughput"),
  "rtx-4080-x4-remote/efficiency": (of) => (100 * of("rtx-4080-x4-remote/scaling")) / 4,
  "rtx-4080-x4-remote/server-request": (of) =>
    of("rtx-4080-x4-remote/queue") +
    of("rtx-4080-x4-remote/compute") +
    of("rtx-4080-x4-remote/input"),
  "rtx-4080-x4-remote/average-batch": (of) =>
    of("rtx-4080-x4-remote/requests") / of("rtx-4080-x4-remote/executions"),
  "cost/rtx-4080-x4-price": (of) => 4 * of("cost/rtx-4080-price"),
  "cost/rtx-4080": (of) =>
    costPerThousand(of("cost/rtx-4080-price"), of("rtx-4080-remote/throughput")),
  "cost/rtx-4080-x4": (of) =>
    costPerThousand(of("cost/rtx-4080-x4-price"), of("rtx-4080-x4-remote/c32-throughput")),
  "cost/a100": (of) => costPerThousand(of("cost/a100-price"), of("a100-remote/pytorch-b32")),
  "operators/else": (of) =>
    100 -
    ["matmul", "gemm", "bias-gelu", "conv"].reduce((sum, id) => sum + of(`operators/${id}`), 0),
  "model-only/gmac": () => Object.values(arithmeticByOperator()).reduce((a, b) => a + b, 0) / 1e9,
  "model-only/gflop": (of) => 2 * of("model-only/gmac"),
};

const unmodelledReasons: Partial<Record<Figure["quantity"], string>> = {
  vram: "memory is not modelled; synth estimates it before a deployment",
  start: "start times are not modelled",
  count: "counts are not modelled",
  share: "operators with negligible arithmetic are not modelled",
  price: "a price",
};

/** Compares every published figure with the model. */
export function checkPublished(facts: PublishedFacts): readonly CheckRow[] {
  const { published } = facts;
  return [...published.values()].flatMap((file) =>
    file.figures.map((figure): CheckRow => {
      const name = `${file.id}/${figure.id}`;
      const [low, high] = figure.range ?? [figure.value ?? 0, figure.value ?? 0];
      const row = {
        figure: name,
        title: file.title,
        place: file.setting.place,
        label: figure.label,
        unit: figure.unit,
        published: { low, high },
        assumed: figure.load?.assumed ?? [],
        note: figure.note ?? "",
      };
      const formula = formulas[name];
      if (formula !== undefined) {
        const exact = formula((of) => publishedValue(published, of));
        // the source rounds its figures
        const predicted = figure.value === undefined ? exact : rounded(exact, figure.value);
        return {
          ...row,
          role: "derived",
          predicted,
          error: relativeError(predicted, low, high),
        };
      }
      if (figure.role === "gpu-compute" || figure.role === "setting-compute") {
        return { ...row, role: "read", predicted: low, error: 0 };
      }
      if (figure.role === "read" || figure.quantity === "peak" || figure.quantity === "price") {
        return { ...row, role: "read" };
      }
      const predicted = predictionOf(file, figure, facts);
      if (predicted === undefined) {
        return {
          ...row,
          role: "carried",
          note: figure.note ?? unmodelledReasons[figure.quantity] ?? "",
        };
      }
      return {
        ...row,
        role: figure.role === undefined ? "predicted" : "calibrates",
        predicted,
        error: relativeError(predicted, low, high),
      };
    }),
  );
}

/** Error of a prediction relative to the published value; 0 within a range. */
export function relativeError(predicted: number, low: number, high: number): number {
  if (predicted < low) return predicted / low - 1;
  return predicted > high ? predicted / high - 1 : 0;
}

function rounded(value: number, like: number): number {
  const digits = (String(like).split(".")[1] ?? "").length;
  return Number(value.toFixed(digits));
}

export function predictionOf(
  file: PublishedFile,
  figure: Figure,
  facts: PublishedFacts,
): number | undefined {
  const { published, parameters, peaks } = facts;
  const name = `${file.id}/${figure.id}`;
  const special = specialPredictions[name];
  if (special !== undefined) return special(facts);
  if (file.id === "triton-tutorial") return predictTutorial(figure, facts);
  const { load, quantity, bytes } = figure;
  if (file.id === "clip-retrieval-a100") {
    return quantity === "throughput" ? predictBulk(facts, file, figure) : undefined;
  }
  if (quantity === "decode") return clipstackDecodeMs(parameters, bytes ?? Number.NaN);
  if (quantity === "gateway") {
    const pixels = figure.id.endsWith("-fp32") ? 0 : parameters.gateway.floatMs;
    return gatewayMs(parameters, bytes ?? Number.NaN) - pixels;
  }
  if (file.setting.place === "data sheet" || file.id === "operators") return undefined;
  if (load === undefined) {
    const peak = peaks[figure.gpu ?? ""];
    return quantity === "throughput" || quantity === "requests"
      ? peak && modelOnlyRate(publishedTower, peak, parameters.sustainedShare)
      : undefined;
  }
  const { imagesPerRequest: images } = load;
  switch (quantity) {
    case "latency":
    case "throughput":
    case "requests":
      return predictFigure(facts, name);
    case "encode":
      return load.serialization === "json"
        ? parameters.jsonMsPerImage * images
        : (publishedValue(published, "serialization/binary-b32") / 32) * images;
    case "bytes":
      return (parameters.jsonBytesPerImage * images) / 1e6;
    case "input":
      return parameters.inputMs;
    case "overhead":
      return parameters.overheadMs + parameters.inputMs;
    case "queue":
      return parameters.overheadMs;
    case "server":
      return serverMs(file, load, facts);
    default:
      return undefined;
  }
}

function serverMs(file: PublishedFile, load: PublishedLoad, facts: PublishedFacts): number {
  const backend = load.endpoint.startsWith("trt") ? "tensorrt" : "onnxruntime";
  const compute = publishedComputeTime(facts, file.setting.gpu ?? "", backend, file.id);
  const { overheadMs, inputMs } = facts.parameters;
  return executionMs(compute, 1) + overheadMs + inputMs;
}

type FigurePrediction = (facts: PublishedFacts) => number;

const grpcRatio =
  (id: string, images: number): FigurePrediction =>
  (facts) => {
    const file = facts.published.get(id);
    if (file === undefined) return Number.NaN;
    const rate = (endpoint: "onnx-grpc" | "onnx-http") => {
      const load: PublishedLoad = {
        endpoint,
        payload: "fp32",
        serialization: "binary",
        imagesPerRequest: images,
        concurrency: 1,
      };
      const { demand, system } = publishedCase(facts, file, load);
      return predict(demand, system).imagesPerSecond;
    };
    return rate("onnx-grpc") / rate("onnx-http");
  };

const specialPredictions: Readonly<Record<string, FigurePrediction>> = {
  "a100-protocols/grpc-b1-ratio": grpcRatio("a100-protocols", 1),
  "a100-protocols/grpc-b4-ratio": grpcRatio("a100-protocols", 4),
  "rtx-4090-protocols/grpc-b1-ratio": grpcRatio("rtx-4090-protocols", 1),
  "rtx-4090-protocols/grpc-b8-ratio": grpcRatio("rtx-4090-protocols", 8),
  "rtx-4090-protocols/a100-latency-ratio": (facts) => {
    const { load } = publishedFigure(facts.published, "a100-remote/onnx-b1-latency");
    const file = facts.published.get("rtx-4090-protocols");
    if (file === undefined || load === undefined) return Number.NaN;
    const { demand, system } = publishedCase(facts, file, load);
    return predict(demand, system).latencyMs / predictFigure(facts, "a100-remote/onnx-b1-latency");
  },
  "a100-remote/pytorch-compute": ({ published, parameters }) =>
    parameters.decodeMsPerImage + publishedValue(published, "a100-remote/onnx-compute"),
  "a100-remote/onnx-network": (facts) =>
    predictFigure(facts, "a100-remote/onnx-b1-latency") -
    publishedValue(facts.published, "a100-remote/onnx-compute") -
    publishedValue(facts.published, "a100-remote/onnx-overhead"),
  "rtx-4080-x4-remote/saturation": (facts) => {
    const levels = [1, 4, 8, 16, 32, 64, 128];
    const rates = levels.map((level) =>
      predictFigure(facts, `rtx-4080-x4-remote/c${level}-throughput`),
    );
    const maximum = Math.max(...rates);
    return levels.find((_, index) => (rates[index] ?? 0) >= 0.95 * maximum) ?? Number.NaN;
  },
  "operators/matmul": () => arithmeticShare("MatMul"),
  "operators/gemm": () => arithmeticShare("Gemm"),
  "operators/conv": () => arithmeticShare("Conv"),
};

function predictTutorial({ id, quantity }: Figure, facts: PublishedFacts): number {
  const instances = id.startsWith("two") ? 2 : 1;
  const system = tutorialSystem(facts, instances, id.startsWith("none") ? 2 : 8);
  const { imagesPerSecond, latencyMs } = predict(tutorialDemand, system);
  return quantity === "latency" ? latencyMs : imagesPerSecond;
}

export interface CheckSummary {
  readonly figures: number;
  readonly byRole: Readonly<Record<Role, number>>;
  /** Errors of the predicted figures. */
  readonly predicted: {
    readonly medianError: number;
    readonly within10: number;
    readonly within25: number;
    /** Figures with larger errors, in descending order. */
    readonly notExplained: readonly CheckRow[];
  };
  /** Derived and calibrating figures that the model does not reproduce; must be empty. */
  readonly broken: readonly CheckRow[];
}

/** Summarises the errors. */
export function summarize(rows: readonly CheckRow[]): CheckSummary {
  const predicted = rows.filter(({ role }) => role === "predicted");
  const size = ({ error = 0 }: CheckRow) => Math.abs(error);
  const sizes = predicted.map(size);
  return {
    figures: rows.length,
    byRole: Object.fromEntries(
      Object.keys(roles).map((role) => [role, rows.filter((row) => row.role === role).length]),
    ) as Record<Role, number>,
    predicted: {
      medianError: median(sizes) ?? 0,
      within10: sizes.filter((error) => error <= 0.1).length,
      within25: sizes.filter((error) => error <= explainedError).length,
      notExplained: predicted
        .filter((row) => size(row) > explainedError)
        .sort((a, b) => size(b) - size(a)),
    },
    broken: rows.filter(
      (row) =>
        (row.role === "derived" && size(row) > 1e-9) ||
        (row.role === "calibrates" && size(row) > 0.015),
    ),
  };
}
