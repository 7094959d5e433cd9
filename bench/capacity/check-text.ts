import { formatPercent } from "../report/number-format.ts";
import { median } from "../stats/statistics.ts";
import type { RecordCalibration } from "./calibrate-record.ts";
import { formatError, formatNumber, textTable } from "./capacity-format.ts";
import {
  type CheckRow,
  type CheckSummary,
  explainedError,
  type Role,
  roles,
} from "./check-published.ts";
import {
  bandOf,
  coverage,
  errorFactors,
  type HeldOutRow,
  type PredictedKind,
} from "./cross-validation.ts";
import type { ProfilePoint } from "./identifiability.ts";
import type { Parameter } from "./parameter-list.ts";

/** Text output of `clipstack capacity --check`, `--cross-validate` and `--parameters`. Pure. */

const publishedText = ({ published: { low, high } }: CheckRow) =>
  low === high ? String(low) : `${low}-${high}`;

/** Published figures with their predictions and errors as text. */
export function checkText(rows: readonly CheckRow[], summary: CheckSummary): string {
  const titles = [...new Set(rows.map(({ title }) => title))];
  const tables = titles.map((title) =>
    [
      title,
      textTable([
        ["  figure", "published", "model", "error", "unit", "role"],
        ...rows
          .filter((row) => row.title === title)
          .map((row) => [
            `  ${row.label}${row.assumed.length > 0 ? " *" : ""}`,
            publishedText(row),
            row.predicted === undefined ? "" : formatNumber(row.predicted),
            formatError(row.error),
            row.unit,
            row.role,
          ]),
      ]),
      "",
    ].join("\n"),
  );
  return [
    ...tables,
    "* part of the load is not in the source and is assumed; the model's latencies are means, also next to a p50 or p95",
    "",
    ...Object.entries(summary.byRole).map(
      ([role, count]) => `${String(count).padStart(4)}  ${role}: ${roles[role as Role]}`,
    ),
    "",
    summaryLine(summary),
    "",
    `unexplained (error above ${formatPercent(explainedError)}):`,
    ...summary.predicted.notExplained.map(
      (row) => `  ${formatError(row.error).padStart(8)}  ${row.figure}: ${row.note}`,
    ),
    ...summary.broken.map((row) => `broken: the model no longer reproduces ${row.figure}`),
  ].join("\n");
}

export function summaryLine({ byRole, predicted }: CheckSummary): string {
  return `Of ${byRole.predicted} predicted figures, ${predicted.within10} are within 10 % and ${predicted.within25} within ${formatPercent(explainedError)}; the median error is ${formatPercent(predicted.medianError)}.`;
}

/** Predictions of each setting by the model without it, and the fit under assumed ingest times, as text. */
export function crossValidationText(
  rows: readonly HeldOutRow[],
  profile: readonly ProfilePoint[],
): string {
  const factors = errorFactors(rows);
  const band = (kind: PredictedKind) => {
    const { p10, p90 } = bandOf([1], factors[kind]);
    return `${p10.toFixed(2)} to ${p90.toFixed(2)}`;
  };
  return [
    textTable([
      ["setting left out", "figure", "published", "model", "error", "P10-P90", "unit"],
      ...rows.map(({ setting, label, unit, published, predicted, interval: { p10, p90 } }) => [
        setting,
        label,
        formatNumber(published),
        formatNumber(predicted),
        formatError(predicted / published - 1),
        `${formatNumber(p10)}-${formatNumber(p90)}`,
        unit,
      ]),
    ]),
    "",
    `${formatPercent(coverage(rows))} of ${rows.length} figures are inside their P10-P90 interval, which follows from the errors in the other settings (nominal: 80 %).`,
    `Published relative to predicted, P10 to P90, each setting counting equally: ${band("throughput")} for throughput, ${band("latency")} for latency.`,
    "",
    "link or ingest: fit of the remote settings if one Triton takes a given time per float32 image",
    textTable([
      ["  ingest of one Triton", "link", "median error", "within 25 %"],
      ...profile.map(({ ingestMs, bandwidthMbps, medianError, within25, figures }) => [
        ingestMs === undefined ? "  as measured" : `  ${ingestMs} ms`,
        bandwidthMbps > 9_000 ? "unlimited" : `${formatNumber(bandwidthMbps)} Mbit/s`,
        formatPercent(medianError),
        `${within25} of ${figures}`,
      ]),
    ]),
    "",
    "The errors do not distinguish the two parameters: the published figures identify the sum of the times per image on the link and in one Triton, not its parts.",
  ].join("\n");
}

export function parametersText(parameters: readonly Parameter[]): string {
  return textTable([
    ["parameter", "value", "unit", "source", "meaning"],
    ...parameters.map(({ name, value, unit, from, meaning }) => [
      name,
      formatNumber(value),
      unit,
      from.join(", "),
      meaning,
    ]),
  ]);
}

/** Maximum median error for predictions to be usable. */
const maxMedianError = 0.5;

/** Error of the model on loads that did not calibrate it. */
export function recordErrorLines({ rows }: Pick<RecordCalibration, "rows">): readonly string[] {
  const predicted = rows.filter(({ role }) => role === "predicted");
  if (predicted.length === 0) {
    return ["The error is unknown: every load point of the record calibrates the model."];
  }
  const throughput = median(predicted.map((row) => Math.abs(row.throughputError))) ?? 0;
  const latency = median(predicted.map((row) => Math.abs(row.latencyError))) ?? 0;
  const loads =
    predicted.length === 1 ? "1 predicted load point" : `${predicted.length} predicted load points`;
  return [
    `Median error over ${loads}: ${formatPercent(throughput)} of images/s, ${formatPercent(latency)} of latency (--check).`,
    ...(Math.max(throughput, latency) > maxMedianError
      ? ["WARNING: the model does not fit this record; measure instead of predicting."]
      : []),
  ];
}

/** Loads of a record with their predictions as text. */
export function recordCheckText({ rows, excluded, notes }: RecordCalibration): string {
  return [
    textTable([
      ["load point", "images/s", "model", "error", "latency", "model", "error", "role"],
      ...rows.map((row) => [
        row.loadPoint,
        formatNumber(row.imagesPerSecond.measured),
        formatNumber(row.imagesPerSecond.predicted),
        formatError(row.throughputError),
        `${formatNumber(row.latencyMs.measured)} ms`,
        `${formatNumber(row.latencyMs.predicted)} ms`,
        formatError(row.latencyError),
        row.role,
      ]),
    ]),
    "",
    ...recordErrorLines({ rows }),
    ...notes,
    ...[...new Set(excluded.map(({ reason }) => reason))].map((reason) => {
      const loads = excluded.filter((entry) => entry.reason === reason).map(({ load }) => load);
      return `excluded: ${loads.length === 1 ? loads[0] : `${loads.length} load points`}: ${reason}`;
    }),
  ].join("\n");
}
