import { readFileSync, writeFileSync } from "node:fs";
import { basename, relative, resolve } from "node:path";
import { type Command, Option } from "commander";
import { benchReportHtml } from "../../bench/report/bench-report-html.ts";
import { benchReportMarkdown } from "../../bench/report/bench-report-md.ts";
import { benchReportText } from "../../bench/report/bench-report-text.ts";
import { parsePerfAnalyzer } from "../../bench/report/import-perf-analyzer.ts";
import { benchRecordText } from "../../bench/report/save-bench-reports.ts";
import { type BenchRecord, parseBenchRecord } from "../../bench/src/bench-record.ts";
import { parseRecord, type VerifyRecord } from "../../bench/src/record.ts";
import { reportHtml } from "../../bench/src/report-html.ts";
import { reportMarkdown } from "../../bench/src/report-md.ts";
import { reportText } from "../../bench/src/report-text.ts";
import { recordText } from "../../bench/src/save-reports.ts";
import { UserError } from "./user-error.ts";

export const reportFormats = ["html", "md", "text", "json"] as const;
export type ReportFormat = (typeof reportFormats)[number];

type Renderers<T> = Readonly<Record<ReportFormat, (record: T) => string>>;

const benchRenderers: Renderers<BenchRecord> = {
  html: benchReportHtml,
  md: benchReportMarkdown,
  text: (record) => `${benchReportText(record)}\n`,
  json: benchRecordText,
};

const verifyRenderers: Renderers<VerifyRecord> = {
  html: reportHtml,
  md: reportMarkdown,
  text: (record) => `${reportText(record)}\n`,
  json: recordText,
};

/** An output of perf_analyzer, and which load it was. */
export interface ImportedFile {
  readonly file: string;
  readonly label?: string;
}

/**
 * A saved record rendered again, whichever command made it.
 *
 * @throws {BenchError} | {UserError} one line: the file, and what is wrong with it.
 */
export function renderRecord(
  file: string,
  format: ReportFormat,
  imports: readonly ImportedFile[] = [],
): string {
  const text = withoutMark(readText(file));
  if (kindOf(text) === "verify") {
    if (imports.length > 0) {
      throw new UserError(
        `--import needs a record of bench or sweep, got a verify record: ${file}`,
      );
    }
    return verifyRenderers[format](parseRecord(text, file));
  }
  const record = parseBenchRecord(text, file);
  const imported = imports.map(({ file: csv, label }) =>
    parsePerfAnalyzer(readText(csv), csv, label),
  );
  const whole = { ...record, imported: [...record.imported, ...imported] };
  // what is written must be readable again
  return benchRenderers[format](parseBenchRecord(JSON.stringify(whole), file));
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new UserError(`${file}: cannot be read: ${(error as NodeJS.ErrnoException).code}`);
  }
}

/** Without the byte order mark that some editors put before a text. */
function withoutMark(text: string): string {
  return text.replace(/^\uFEFF/, "");
}

/** What kind of record it says it is; whether that is true, its reader says. */
function kindOf(text: string): unknown {
  try {
    const raw: unknown = JSON.parse(text);
    return typeof raw === "object" && raw !== null && "kind" in raw ? raw.kind : undefined;
  } catch {
    return undefined;
  }
}

/** `onnx-http b8=triton.csv`, or the file alone. */
export function parseImport(given: string): ImportedFile {
  const equals = given.indexOf("=");
  if (equals === -1) return { file: given };
  return { label: given.slice(0, equals).trim(), file: given.slice(equals + 1) };
}

interface ReportArguments {
  readonly format: ReportFormat;
  readonly output?: string;
  readonly import?: readonly ImportedFile[];
}

/** Where a report goes: HTML beside its record, all else to standard output. */
export function outputOf(record: string, { format, output }: Omit<ReportArguments, "import">) {
  if (output !== undefined) return output === "-" ? undefined : output;
  return format === "html" ? `${record.replace(/\.json$/i, "")}.html` : undefined;
}

/** `clipstack report`: a saved record as HTML, Markdown or text. */
export function registerReport(program: Command): void {
  program
    .command("report")
    .argument("<record>", "a record: the JSON that bench, sweep or verify wrote")
    .addOption(
      new Option("--format <format>", "html, md (for a pull request), text, or json (the record)")
        .choices(reportFormats)
        .default("html"),
    )
    .option("--output <file>", "- is standard output (default: html beside the record, else -)")
    .addOption(
      new Option(
        "--import <[load=]file>",
        "a CSV that perf_analyzer wrote with -f, shown beside ours: its load as 'onnx-http b8' (repeatable)",
      ).argParser((given: string, all: readonly ImportedFile[] = []) => [
        ...all,
        parseImport(given),
      ]),
    )
    .addHelpText(
      "after",
      `
The report is computed from the record and from nothing else, so an old record can be rendered again.

Examples:
  $ npx clipstack report bench/reports/2026-11-21T10-30-00Z-bench-single-gpu.json
  $ npx clipstack report record.json --format md --output report.md
  $ npx clipstack report record.json --import "onnx-http b8=perf_analyzer.csv"
  $ npx clipstack report record.json --import onnx-grpc=c1-32.csv --format json --output both.json

Exit codes: 0 all good, 2 wrong usage, or a record that cannot be read.`,
    )
    .action((record: string, args: ReportArguments) => {
      const text = renderRecord(record, args.format, args.import);
      const output = outputOf(record, args);
      if (output === undefined) {
        process.stdout.write(text);
        return;
      }
      if (resolve(output) === resolve(record)) {
        throw new UserError(`--output must not be the record itself: ${basename(record)}`);
      }
      try {
        writeFileSync(output, text);
      } catch (error) {
        throw new UserError(
          `--output ${output} cannot be written: ${(error as NodeJS.ErrnoException).code}`,
        );
      }
      console.log(`report: ${relative("", output)}`);
    });
}
