import { type Command, Option } from "commander";
import { type BenchRecord, readBenchRecord } from "../../bench/record/bench-record.ts";
import {
  type Comparison,
  compareRecords,
  defaultFailOver,
  differences,
  mismatches,
} from "../../bench/report/compare.ts";
import { compareReport } from "../../bench/report/compare-report.ts";
import { UserError } from "../../contract/user-error.ts";
import { renderMarkdown } from "../../report/render/render-md.ts";
import { renderText } from "../../report/render/render-text.ts";
import { percentage } from "../shared/option-values.ts";
import { writeOutput } from "../shared/write-output.ts";

const compareFormats = ["text", "md", "json"] as const;

export interface CompareArguments {
  /** Relative deterioration above which the comparison fails, 0..1. */
  readonly failOver: number;
  /** Compares records although machine, target, model, GPU or images differ. */
  readonly force?: true;
  /** Accepts endpoints and loads that only the first record has. */
  readonly allowMissing?: true;
}

export interface CompareResult {
  readonly from: BenchRecord;
  readonly to: BenchRecord;
  readonly comparison: Comparison;
  /** 0 no regression, 1 a regression, failure or missing load, 2 no comparable load. */
  readonly exitCode: number;
}

/** Compares two saved records. */
export function compareFiles(
  fromFile: string,
  toFile: string,
  args: CompareArguments,
): CompareResult {
  const [from, to] = [readBenchRecord(fromFile), readBenchRecord(toFile)];
  const differing = mismatches(from, to);
  if (differing.length > 0 && args.force !== true) {
    throw new UserError(
      `${fromFile} and ${toFile} cannot be compared: ${differing.join("; ")} (--force compares them anyway)`,
    );
  }
  const compared = compareRecords(from, to, args);
  // a run that failed before timing has no load points
  if (compared.loadPoints.length === 0 && (to.passed || !from.passed)) {
    throw new UserError(
      `${fromFile} and ${toFile} have no load point in common: environments, endpoints, batches, clients or rates differ`,
    );
  }
  const comparison = {
    ...compared,
    warnings: [
      ...differing.map(
        (line) => `Not comparable: ${line}. Ratios do not show the effect of a single change.`,
      ),
      ...differences(from, to),
    ],
  };
  return { from, to, comparison, exitCode: exitCodeOf(comparison) };
}

function exitCodeOf({ regressions, broken, judged }: Comparison): number {
  if (regressions.length + broken.length > 0) return 1;
  return judged === 0 ? 2 : 0;
}

/** Comparison as JSON: names and ratios without the load points. */
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

/** `clipstack compare`: reports significant changes between two records. */
export function registerCompare(program: Command): void {
  program
    .command("compare")
    .argument("<from>", "earlier record")
    .argument("<to>", "later record")
    .addOption(
      new Option(
        "--fail-over <percent>",
        "maximum significant deterioration of an endpoint or load",
      )
        .argParser(percentage(0, 1_000))
        .default(defaultFailOver, "10%"),
    )
    .option("--force", "compare records of different machines, models or runtimes")
    .option("--allow-missing", "accept endpoints and loads that only the first record has")
    .addOption(
      new Option("--format <format>", "text, md (for a pull request) or json")
        .choices(compareFormats)
        .default("text"),
    )
    .option("--json", "same as --format json")
    .option("--output <file>", "write to a file instead of standard output")
    .addHelpText(
      "after",
      `
Each ratio is the second record's figure divided by the first's, with a 95 % confidence interval from the rounds of both
(Welch's t). An endpoint fails if the entire interval over its loads is worse by more than --fail-over. A single load of an endpoint with several loads fails at twice that (at least 10 % more), because runs
drift; below, it is listed as needing attention. The comparison also fails if only the second run failed, or if the second
record lacks an endpoint or load (--allow-missing). Invalid and drifting loads are listed but not compared.

Examples:
  $ npx clipstack compare before.json after.json
  $ npx clipstack compare before.json after.json --fail-over 5% --format md > comparison.md
  $ npx clipstack compare laptop.json server.json --force

Exit codes: 0 no regression, 1 regression, failure or missing load, 2 wrong usage or no comparable load.`,
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
