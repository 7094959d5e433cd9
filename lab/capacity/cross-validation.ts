import type { ErrorFactors, Peaks, PredictedKind } from "../../bench/capacity/capacity-table.ts";
import { type Band, bandOf } from "../../bench/capacity/intervals.ts";
import { calibratePublished } from "./calibrate.ts";
import { predictionOf } from "./check.ts";
import type { Figure, PublishedFile } from "./published.ts";
import type { PublishedFacts } from "./published-facts.ts";

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

/** Kind of a figure, if it is of a complete service with the published model; `undefined` for parts of a service, sums and other models. */
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

/** Share of held-out figures inside their interval; nominally 80 %. */
export function coverage(rows: readonly HeldOutRow[]): number {
  const inside = rows.filter(
    ({ published, interval: { p10, p90 } }) => published >= p10 && published <= p90,
  );
  return inside.length / rows.length;
}
