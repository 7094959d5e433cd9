import { readdirSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import { type BenchRecord, readBenchRecord } from "../../bench/record/bench-record.ts";
import { type HistorySubject, historyOf, type NamedRecord } from "../../bench/report/history.ts";
import { historyReport, type SkippedFile } from "../../bench/report/history-report.ts";
import { UserError } from "../../contract/user-error.ts";
import { recordText } from "../../report/save-reports.ts";
import { withFileErrors, writeOutput } from "../shared/write-output.ts";
import { type ReportFormat, renderAs } from "./report-format.ts";

/** Changes over several records, and the files that are no readable record. */
export interface History {
  readonly subjects: readonly HistorySubject[];
  readonly skipped: readonly SkippedFile[];
}

/** Reads the records of `clipstack bench` in folders and files. */
export function readHistory(paths: readonly string[]): History {
  const files = [...new Set(paths.flatMap(jsonFiles))];
  const records: NamedRecord[] = [];
  const skipped: SkippedFile[] = [];
  for (const file of files) {
    try {
      records.push({ file, record: readBenchRecord(file) });
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      skipped.push({ file, reason: error.message });
    }
  }
  if (records.length === 0) {
    const reason = skipped[0] === undefined ? "no .json file" : skipped[0].reason;
    throw new UserError(
      `--history ${paths.join(" ")}: no file is a readable record of bench: ${reason}`,
    );
  }
  return { subjects: historyOf(withoutCopies(records)), skipped };
}

/** Removes copies of a run, such as those of `--output`. */
function withoutCopies(records: readonly NamedRecord[]): readonly NamedRecord[] {
  const identity = ({ startedAt, finishedAt, subject }: BenchRecord) =>
    JSON.stringify([startedAt, finishedAt, subject]);
  return [...new Map(records.map((named) => [identity(named.record), named])).values()];
}

function jsonFiles(path: string): readonly string[] {
  return withFileErrors(`--history ${path}:`, "read", () => {
    if (!statSync(path).isDirectory()) return [path];
    const names = readdirSync(path).filter((name) => name.endsWith(".json"));
    return names.sort().map((name) => join(path, name));
  });
}

/** Renders a history in a format of `clipstack report`. */
export function renderHistory({ subjects, skipped }: History, format: ReportFormat): string {
  const report = () => historyReport(subjects, skipped);
  return renderAs({ report, json: recordText({ subjects, skipped }) }, format);
}

/**
 * Prints a history as text and saves the page as `history.html` in the current folder; another format is printed, or written to
 * the output file.
 */
export function reportHistory(
  paths: readonly string[],
  { format, output }: { readonly format: ReportFormat; readonly output?: string },
): void {
  const history = readHistory(paths);
  for (const { file, reason } of history.skipped) {
    console.error(`skipped ${reason.startsWith(file) ? reason : `${file}: ${reason}`}`);
  }
  const text = renderHistory(history, format);
  const target = output ?? (format === "html" ? "history.html" : "-");
  if (target === "-") {
    process.stdout.write(text);
    return;
  }
  writeOutput(target, text);
  if (format === "html") process.stdout.write(`${renderHistory(history, "text")}\n`);
  console.log(`report: ${relative("", target)}`);
}
