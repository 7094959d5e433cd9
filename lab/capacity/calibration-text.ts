import { formatNumber, textTable } from "../../bench/capacity/capacity-format.ts";
import type { PredictedKind } from "../../bench/capacity/capacity-table.ts";
import { bandOf } from "../../bench/capacity/intervals.ts";
import { formatPercent } from "../../report/document/number-format.ts";
import { type CheckRow, type CheckSummary, explainedError, type Role, roles } from "./check.ts";
import { coverage, errorFactors, type HeldOutRow } from "./cross-validation.ts";
import type { ProfilePoint } from "./identifiability.ts";

/** Text output of `npm run lab -- calibrate`. Pure. */

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
    "link or ingest: fit of the remote settings if one Triton server takes a given time per float32 image",
    textTable([
      ["  ingest of one Triton server", "link", "median error", "within 25 %"],
      ...profile.map(({ ingestMs, bandwidthMbps, medianError, within25, figures }) => [
        ingestMs === undefined ? "  as measured" : `  ${ingestMs} ms`,
        bandwidthMbps > 9_000 ? "unlimited" : `${formatNumber(bandwidthMbps)} Mbit/s`,
        formatPercent(medianError),
        `${within25} of ${figures}`,
      ]),
    ]),
    "",
    "The errors do not distinguish the two parameters: the published figures identify the sum of the times per image on the link and in one Triton server, not its parts.",
  ].join("\n");
}

/** Relative error as a signed percentage. */
export function formatError(error: number | undefined): string {
  if (error === undefined) return "";
  const percent = Math.round(100 * error);
  return percent === 0 ? "0 %" : `${percent > 0 ? "+" : ""}${percent} %`;
}
