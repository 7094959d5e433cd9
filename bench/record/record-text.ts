import { recordText, reportName } from "../../report/save-reports.ts";
import type { BenchRecord } from "./bench-record.ts";

/** File name of a record without extension, see {@link reportName}. */
export function benchReportName(record: BenchRecord): string {
  const { startedAt, studies, subject, loadPoints, tune } = record;
  if (tune !== undefined) return reportName(startedAt, `tune-${tune.environment}`);
  const known = subject.environments.map(({ name }) => name);
  const names =
    known.length > 0 ? known : [...new Set(loadPoints.map((point) => point.environment))];
  const what = names.join("+").replace(/[^\w.+-]+/g, "-") || "addresses";
  return reportName(startedAt, `${studies.length > 0 ? "sweep" : "bench"}-${what}`);
}

/** Saved form of a benchmark record, with each pair of a histogram on one line. */
export function benchRecordText(record: BenchRecord): string {
  return recordText(record).replace(/\[\n\s+(\d+),\n\s+(\d+)\n\s+\]/g, "[$1, $2]");
}
