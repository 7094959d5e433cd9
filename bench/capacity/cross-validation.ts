import { quantile } from "../stats/statistics.ts";
import { calibratePublished } from "./calibrate-published.ts";
import { predictionOf } from "./check-published.ts";
import type { Figure, PublishedFile } from "./published.ts";
import type { Peaks, PublishedFacts } from "./published-parameters.ts";

/** Kinds of predictions with an interval. */
export const predictedKinds = ["throughput", "latency"] as const;
export type PredictedKind = (typeof predictedKinds)[number];

/** Published figure, predicted by a model that was calibrated without its setting. */
export interface HeldOutRow {
  /** File of published figures. */
  readonly setting: string;
  /** `file/id` */
  readonly figure: string;
  readonly label: string;
  readonly unit: string;
  readonly kind: PredictedKind;
  readonly published: number;
  readonly predicted: number;
  /** Interval of the prediction from the errors in the other settings. */
  readonly interval: Band;
}

/** 10th and 90th percentile of a prediction. */
export interface Band {
  readonly p10: number;
  readonly p90: number;
}

/** Ratios of published to predicted figures, by setting. */
export type ErrorFactors = Readonly<Record<PredictedKind, readonly (readonly number[])[]>>;

/**
 * Predicts each setting by a model calibrated with the other settings. The held-out setting has the GPU's typical compute time, unless
 * another setting has the same GPU, and the median round trip of the others.
 */
export function leaveOneOut({
  published,
  peaks,
}: Pick<PublishedFacts, "published" | "peaks">): readonly HeldOutRow[] {
  const rows = [...published.values()].flatMap((file) => {
    const figures = file.figures.filter((figure) => kindOf(file, figure) !== undefined);
    return figures.length === 0 ? [] : heldOut(file, figures, published, peaks);
  });
  return rows.map((row) => {
    const others = errorFactors(rows.filter(({ setting }) => setting !== row.setting));
    return { ...row, interval: bandOf([row.predicted], others[row.kind]) };
  });
}

function heldOut(
  file: PublishedFile,
  figures: readonly Figure[],
  published: ReadonlyMap<string, PublishedFile>,
  peaks: Peaks,
): readonly Omit<HeldOutRow, "interval">[] {
  const others = new Map([...published].filter(([id]) => id !== file.id));
  const facts = { published, peaks, parameters: calibratePublished(others, peaks) };
  return figures.map((figure) => ({
    setting: file.id,
    figure: `${file.id}/${figure.id}`,
    label: figure.label,
    unit: figure.unit,
    kind: kindOf(file, figure) ?? "latency",
    published: figure.value ?? Number.NaN,
    predicted: predictionOf(file, figure, facts) ?? Number.NaN,
  }));
}

/** Kind of a figure of a complete service in a setting of its own; `undefined` for parts, sums and other models. */
function kindOf(
  file: PublishedFile,
  { quantity, load, derived, value }: Figure,
): PredictedKind | undefined {
  const service = load !== undefined || file.id === "clip-retrieval-a100";
  if (!service || derived !== undefined || value === undefined) return undefined;
  if (quantity === "throughput" || quantity === "requests") return "throughput";
  return quantity === "latency" || quantity === "server" ? "latency" : undefined;
}

export function errorFactors(
  rows: readonly Pick<HeldOutRow, "setting" | "kind" | "published" | "predicted">[],
): ErrorFactors {
  const settings = [...new Set(rows.map(({ setting }) => setting))];
  const ofKind = (wanted: PredictedKind) =>
    settings
      .map((name) => rows.filter(({ setting, kind }) => setting === name && kind === wanted))
      .filter((some) => some.length > 0)
      .map((some) => some.map(({ published, predicted }) => published / predicted));
  return { throughput: ofKind("throughput"), latency: ofKind("latency") };
}

/** Number of repetitions of the errors of each setting, so that all settings count equally. */
const repetitions = 30;

/** Interval of a prediction, given its values for rounded sources and the errors in other settings, which count equally. */
export function bandOf(values: readonly number[], factors: readonly (readonly number[])[]): Band {
  const equal = factors.flatMap((some) =>
    Array.from({ length: repetitions }, (_, i) => {
      const sorted = [...some].sort((a, b) => a - b);
      return sorted[Math.floor((i * sorted.length) / repetitions)] ?? 1;
    }),
  );
  const all = values.flatMap((value) => equal.map((factor) => value * factor));
  return { p10: quantile(all, 0.1), p90: quantile(all, 0.9) };
}

/** Share of held-out figures inside their interval; nominally 80 %. */
export function coverage(rows: readonly HeldOutRow[]): number {
  const inside = rows.filter(
    ({ published, interval: { p10, p90 } }) => published >= p10 && published <= p90,
  );
  return inside.length / rows.length;
}
