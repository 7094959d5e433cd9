import { readFileSync } from "node:fs";
import { basename, relative, resolve } from "node:path";
import { type Command, Option } from "commander";
import { parseBenchRecord } from "../../bench/record/bench-record.ts";
import { parseRecord } from "../../bench/record/record.ts";
import { benchRecordText } from "../../bench/record/record-text.ts";
import { benchReport } from "../../bench/report/bench-report.ts";
import { parseJsonResult } from "../../bench/report/import-json.ts";
import { parsePerfAnalyzer } from "../../bench/report/import-perf-analyzer.ts";
import { UserError } from "../../contract/user-error.ts";
import { recordText } from "../../report/save-reports.ts";
import { parseDrillRecord } from "../../verify/drills/drill-record.ts";
import { drillReport } from "../../verify/drills/drill-report.ts";
import { verifyReport } from "../../verify/verify-report.ts";
import {
  type ReadReport,
  type ReportFormat,
  renderAs,
  reportFormats,
} from "../prepare/report-format.ts";
import { reportHistory } from "../prepare/report-history.ts";
import { repeated } from "../shared/option-values.ts";
import { withFileErrors, writeOutput } from "../shared/write-output.ts";

/** Result of another load generator, with the label of its load point. */
interface ImportedFile {
  readonly file: string;
  readonly label?: string;
}

/** Renders a saved record of any command. */
export function renderRecord(
  file: string,
  format: ReportFormat,
  imports: readonly ImportedFile[] = [],
): string {
  return renderAs(readReport(file, imports), format);
}

/** Reads the record of one kind. */
const readers: Readonly<Record<string, (text: string, file: string) => ReadReport>> = {
  verify: (text, file) => {
    const record = parseRecord(text, file);
    return { report: () => verifyReport(record), json: recordText(record) };
  },
  drill: readDrill,
  // schema 1
  k8s: readDrill,
};

function readDrill(text: string, file: string): ReadReport {
  const record = parseDrillRecord(text, file);
  return { report: () => drillReport(record), json: recordText(record) };
}

function readReport(file: string, imports: readonly ImportedFile[]): ReadReport {
  const text = readText(file);
  const kind = kindOf(text);
  const reader = readers[String(kind)];
  if (reader === undefined) return readBench(text, file, imports);
  if (imports.length > 0) {
    throw new UserError(`--import needs a record of bench or sweep, got a ${kind} record: ${file}`);
  }
  return reader(text, file);
}

function readBench(text: string, file: string, imports: readonly ImportedFile[]): ReadReport {
  const record = parseBenchRecord(text, file);
  const imported = imports.map(({ file: path, label }) => {
    const result = readText(path);
    const parseResult = result.trimStart().startsWith("{") ? parseJsonResult : parsePerfAnalyzer;
    return parseResult(result, path, label);
  });
  const combined = { ...record, imported: [...record.imported, ...imported] };
  // the printed record must be readable again
  const checked = parseBenchRecord(JSON.stringify(combined), file);
  return { report: () => benchReport(checked), json: benchRecordText(checked) };
}

function readText(file: string): string {
  return withFileErrors(`${file}:`, "read", () => readFileSync(file, "utf8"));
}

/** Declared kind of a record, if it has one. */
function kindOf(text: string): unknown {
  try {
    return (JSON.parse(text.replace(/^\uFEFF/, "")) as { kind?: unknown } | null)?.kind;
  } catch {
    return undefined;
  }
}

/** Parses `onnx-http b8=triton.csv` or `triton.csv`. */
export function parseImport(text: string): ImportedFile {
  const equals = text.indexOf("=");
  if (equals === -1) return { file: text };
  return { label: text.slice(0, equals).trim(), file: text.slice(equals + 1) };
}

interface ReportArguments {
  readonly format: ReportFormat;
  readonly output?: string;
  readonly import?: readonly ImportedFile[];
  readonly history?: readonly string[];
  readonly json?: true;
}

/** Output file of a report: HTML next to its record; `undefined` for standard output. */
export function outputOf(
  record: string,
  { format, output }: Pick<ReportArguments, "format" | "output">,
) {
  if (output !== undefined) return output === "-" ? undefined : output;
  return format === "html" ? `${record.replace(/\.json$/i, "")}.html` : undefined;
}

/** Registers `clipstack report`, which renders a saved record as HTML, Markdown or text. */
export function registerReport(program: Command): void {
  program
    .command("report")
    .argument("[record]", "JSON record of bench, sweep, verify or k8s")
    .addOption(
      new Option("--format <format>", "html, md (for a pull request), text, or json (the record)")
        .choices(reportFormats)
        .default("html"),
    )
    .option(
      "--output <file>",
      "output file; - for standard output (default: next to the record for html, otherwise -)",
    )
    .addOption(
      new Option(
        "--import <[load=]file>",
        "result to compare with: JSON of AIPerf or of vllm bench serve, CSV of perf_analyzer (-f); labelled with a load such as 'onnx-http b8' (repeatable)",
      ).argParser(repeated(parseImport)),
    )
    .option(
      "--history <paths...>",
      "folders and records of bench: what changed, when and at which commit, instead of one record",
    )
    .option("--json", "same as --format json")
    .addHelpText(
      "after",
      `
The report is computed from the record alone, so old records can be rendered again.

--history orders records by time and groups them by environment, machine, model and load. It lists the first and last value of each
metric, and every change beyond what compare tolerates with its time and commit ("with changes": files differed from the commit). The text is printed
and the page with plots is written to history.html or --output. Files that are no record are listed and skipped.

Examples:
  $ npx clipstack report bench/reports/2026-11-21T10-30-00Z-bench-single-gpu.json
  $ npx clipstack report record.json --format md --output report.md
  $ npx clipstack report record.json --import "onnx-http b8=perf_analyzer.csv"
  $ npx clipstack report record.json --import openai-http_text=profile_export_aiperf.json
  $ npx clipstack report record.json --import onnx-grpc=c1-32.csv --format json --output both.json
  $ npx clipstack report --history bench/reports/
  $ npx clipstack report --history monday.json friday.json --format md

Exit codes: 0 success, 2 wrong usage or unreadable record; with --history, no readable record.`,
    )
    .action((record: string | undefined, args: ReportArguments) => {
      const format = args.json ? "json" : args.format;
      if (args.history !== undefined) {
        if (record !== undefined || args.import !== undefined) {
          throw new UserError("--history cannot be combined with a record or --import");
        }
        reportHistory(args.history, { ...args, format });
        return;
      }
      if (record === undefined) throw new UserError("report requires a record or --history");
      const text = renderRecord(record, format, args.import);
      const output = outputOf(record, { ...args, format });
      if (output === undefined) {
        process.stdout.write(text);
        return;
      }
      if (resolve(output) === resolve(record)) {
        throw new UserError(`--output must differ from the record: ${basename(record)}`);
      }
      writeOutput(output, text);
      console.log(`report: ${relative("", output)}`);
    });
}
