import { type Command, Option } from "commander";
import { type BenchRecord, readBenchRecord } from "../../bench/record/bench-record.ts";
import {
  type Comparison,
  compareRecords,
  differences,
  mismatches,
} from "../../bench/report/compare.ts";
import { compareReport } from "../../bench/report/compare-report.ts";
import { renderMarkdown } from "../../bench/report/render-md.ts";
import { renderText } from "../../bench/report/render-text.ts";
import { UserError } from "../../contract/user-error.ts";
import { percentage } from "../option-values.ts";
import { writeOutput } from "../write-output.ts";

export const compareFormats = ["text", "md", "json"] as const;

export interface CompareArguments {
  /** Worse by more than this part fails, 0..1. */
  readonly failOver: number;
  /** Compare what differs in more than what is to be found out. */
  readonly force?: true;
  /** A path or load that only the first record has is no failure. */
  readonly allowMissing?: true;
}

export interface CompareResult {
  readonly from: BenchRecord;
  readonly to: BenchRecord;
  readonly comparison: Comparison;
  /** 0 no regression, 1 one or more or something failed or is missing, 2 nothing could be judged. */
  readonly exitCode: number;
}

/**
 * Compare two saved records.
 *
 * @throws {UserError} | {UserError} one line: a file that is no record, or records that must not be compared.
 */
export function compareFiles(
  fromFile: string,
  toFile: string,
  args: CompareArguments,
): CompareResult {
  const [from, to] = [readBenchRecord(fromFile), readBenchRecord(toFile)];
  const wrong = mismatches(from, to);
  if (wrong.length > 0 && args.force !== true) {
    throw new UserError(
      `${fromFile} and ${toFile} cannot be compared: ${wrong.join("; ")} (--force compares them all the same)`,
    );
  }
  const found = compareRecords(from, to, args);
  // a run that failed before it timed anything has no load either
  if (found.loadPoints.length === 0 && (to.passed || !from.passed)) {
    throw new UserError(
      `${fromFile} and ${toFile} have no load point in common: environments, endpoints, batches, clients or rates differ`,
    );
  }
  const comparison = {
    ...found,
    warnings: [
      ...wrong.map((line) => `Not the same: ${line}. Ratios say nothing of one change alone.`),
      ...differences(from, to),
    ],
  };
  return { from, to, comparison, exitCode: exitCodeOf(comparison) };
}

function exitCodeOf({ regressions, broken, judged }: Comparison): number {
  if (regressions.length + broken.length > 0) return 1;
  return judged === 0 ? 2 : 0;
}

/** For programs: names and ratios, without the load points. */
export function comparisonJson({
  comparison,
  exitCode,
}: Pick<CompareResult, "comparison" | "exitCode">): string {
  const { loadPoints, ...rest } = comparison;
  const loads = loadPoints.map(({ name, changes, failed, exclusionReasons }) => ({
    name,
    changes,
    failed,
    notJudged: exclusionReasons,
  }));
  return `${JSON.stringify({ ...rest, loads, passed: exitCode === 0 }, null, 2)}\n`;
}

interface CommandArguments extends CompareArguments {
  readonly format: (typeof compareFormats)[number];
  readonly json?: true;
  readonly output?: string;
}

/** `clipstack compare`: did it become slower, and is that more than noise? */
export function registerCompare(program: Command): void {
  program
    .command("compare")
    .argument("<from>", "a record: what was before")
    .argument("<to>", "a record: what is now")
    .addOption(
      new Option(
        "--fail-over <percent>",
        "fail where an endpoint or a load is worse by more than this, noise left out",
      )
        .argParser(percentage(0, 1_000))
        .default(0.1, "10%"),
    )
    .option("--force", "compare records of different machines, models or runtimes")
    .option("--allow-missing", "an endpoint or load that only the first record has is no failure")
    .addOption(
      new Option("--format <format>", "text, md (for a pull request) or json")
        .choices(compareFormats)
        .default("text"),
    )
    .option("--json", "the same as --format json")
    .option("--output <file>", "write it to a file in place of standard output")
    .addHelpText(
      "after",
      `
Each ratio is the second record's figure divided by the first's, with the interval that holds it with 95 % confidence: the
measured windows are drawn again for throughput, the histograms for percentiles (seeded: the same records, the same answer).
A path fails only where the whole interval over its loads is worse by more than --fail-over; of an endpoint with several loads, one
alone by twice that (at least 10 % more), for no interval holds what drifts between two runs: below, it is named to look at. It fails too where the second run failed
and the first did not, or where the second has no such path or load (--allow-missing). Invalid and unstable loads are shown, not
judged; where none can be judged, the exit code is 2.

Examples:
  $ npx clipstack compare before.json after.json
  $ npx clipstack compare before.json after.json --fail-over 5% --format md > comparison.md
  $ npx clipstack compare laptop.json server.json --force

Exit codes: 0 no regression, 1 a regression, or something failed or missing, 2 wrong usage, or nothing that can be compared.`,
    )
    .action((from: string, to: string, args: CommandArguments) => {
      const result = compareFiles(from, to, args);
      const text = rendered(result, args.json ? "json" : args.format);
      if (args.output === undefined) process.stdout.write(text);
      else writeOutput(args.output, text);
      process.exitCode = result.exitCode;
    });
}

function rendered(result: CompareResult, format: CommandArguments["format"]): string {
  const { from, to, comparison } = result;
  switch (format) {
    case "text":
      return renderText(compareReport(from, to, comparison));
    case "md":
      return renderMarkdown(compareReport(from, to, comparison));
    case "json":
      return comparisonJson(result);
  }
}
