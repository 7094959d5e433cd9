import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BenchError } from "../src/bench-error.ts";
import type { BenchRecord } from "../src/bench-record.ts";
import type { SavedReports } from "../src/save-reports.ts";
import { benchReportHtml } from "./bench-report-html.ts";
import { benchReportMarkdown } from "./bench-report-md.ts";

/** `2026-11-21T10-30-00Z-bench-single-gpu`: when, in UTC, and what. */
export function benchReportName({ startedAt, studies, subject, cells }: BenchRecord): string {
  const time = startedAt.replace(/\.\d+Z$/, "Z").replaceAll(":", "-");
  const known = subject.environments.map(({ name }) => name);
  const names = known.length > 0 ? known : [...new Set(cells.map((cell) => cell.environment))];
  const what = names.join("+").replace(/[^\w.+-]+/g, "-") || "endpoints";
  return `${time}-${studies.length > 0 ? "sweep" : "bench"}-${what}`;
}

/** The record as it is saved and printed: indented, but for the pairs of its histograms. */
export function benchRecordText(record: BenchRecord): string {
  return `${JSON.stringify(record, null, 2).replace(/\[\n\s+(\d+),\n\s+(\d+)\n\s+\]/g, "[$1, $2]")}\n`;
}

/** Write the record and both reports of it. */
export function saveBenchReports(record: BenchRecord, folder: string): SavedReports {
  const base = join(folder, benchReportName(record));
  const saved = { json: `${base}.json`, html: `${base}.html`, md: `${base}.md` };
  try {
    mkdirSync(folder, { recursive: true });
    // the record first: it cannot be had again
    writeFileSync(saved.json, benchRecordText(record));
    writeFileSync(saved.html, benchReportHtml(record));
    writeFileSync(saved.md, benchReportMarkdown(record));
  } catch (error) {
    throw new BenchError(`reports cannot be written to ${folder}: ${(error as Error).message}`);
  }
  return saved;
}
