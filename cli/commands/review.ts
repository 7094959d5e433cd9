import { extname } from "node:path";
import { type Command, InvalidArgumentError, Option } from "commander";
import { type Review, verdictLevels } from "../../review/changes/stack-review.ts";
import { attestationOf, attestationProblems } from "../../review/ci/attestation.ts";
import {
  notReviewedComment,
  type Publication,
  publications,
  publishOnGithub,
} from "../../review/ci/github.ts";
import { readChanges, readInput, readPlans } from "../../review/ci/read-files.ts";
import { verifyPlans } from "../../review/ci/verify-plan.ts";
import type { RuleFinding, StackChange } from "../../review/input/change.ts";
import { isUnchanged } from "../../review/report/comment-document.ts";
import { htmlReport } from "../../review/report/comment-html.ts";
import { markdownComment } from "../../review/report/comment-markdown.ts";
import { junitReport } from "../../review/report/junit.ts";
import { sarifReport } from "../../review/report/sarif.ts";
import { reviewOf } from "../../review/review.ts";
import { findingsOfChange } from "../../review/rules/findings.ts";
import { predictEnvironment } from "../prepare/predict-environment.ts";
import { readReviewSettings } from "../prepare/review-settings.ts";
import { repeated, textMatching } from "../shared/option-values.ts";
import { writeOutput } from "../shared/write-output.ts";

const failLevels = ["error", "warning", "never"] as const;

interface ReviewArguments {
  readonly plan: readonly string[];
  readonly base?: string;
  readonly head?: string;
  readonly environments?: string;
  readonly settings?: string;
  readonly json?: true;
  readonly html?: true;
  readonly output: readonly string[];
  readonly rulesUrl?: string;
  readonly reportUrl?: string;
  readonly failOn: (typeof failLevels)[number];
  readonly drift?: true;
  readonly github?: readonly Publication[];
  readonly detailedExitcode?: true;
  readonly onlyChanges?: true;
  readonly verifyPlan: readonly string[];
  readonly today?: string;
}

const helpText = `
Secrets are never printed: sensitive values of Terraform, values with a name or format typical of secrets, and chart values.

Examples:
  $ terraform show -json plan > plan.json && npx clipstack review plan.json
  $ npx clipstack review --plan single-gpu=a.json --plan kind-local=b.json --output review.md --output review.html
  $ npx clipstack review --base ../main/cdktf.out --head cdktf.out
  $ npx clipstack review --plan fresh.json --verify-plan reviewed.json && terraform apply fresh

Exit codes: 0 success, 1 the change is blocked or differs from the reviewed change, 2 invalid usage or files.`;

/** `clipstack review`: renders a plan as a comment for the reviewers of a change. */
export function registerReview(program: Command): void {
  const command = program
    .command("review")
    .argument("[plans...]", "same as --plan")
    .option(
      "--plan <file>",
      "plan, as printed by 'terraform show -json'; NAME=FILE names its stack; '-' is the standard input; repeat for several stacks",
      repeated(String),
      [],
    )
    .option("--base <folder>", "cdktf.out before the change, if there is no plan")
    .option(
      "--head <folder>",
      "cdktf.out after the change; with --plan it adds construct paths and the backend",
    )
    .option(
      "--environments <folder>",
      "folder with the environment files, which contain the waivers (default: that of the project)",
    )
    .option(
      "--settings <file>",
      "settings of the repository: rules, waivers, own rules (default: .clipstack-review.yaml)",
    )
    .option("--json", "print JSON instead of Markdown")
    .option("--html", "print an HTML page instead of Markdown")
    .option(
      "--output <file>",
      "also write to a file: .md, .html, .json, .sarif or .xml (JUnit); repeatable",
      repeated(outputFile),
      [],
    )
    .addOption(
      new Option("--fail-on <severity>", "lowest severity that exits with code 1")
        .choices(failLevels)
        .default("error"),
    )
    .option(
      "--drift",
      "fail if resources changed outside of Terraform, in a plan with -refresh-only",
    )
    .option(
      "--github <places>",
      `in a GitHub workflow: write its outputs, and publish as ${publications.join(", ")} (separated by commas, or none)`,
      githubPlaces,
    )
    .option("--only-changes", "print nothing if nothing changes")
    .option(
      "--detailed-exitcode",
      "exit codes as in Terraform: 0 no changes, 1 error or blocked change, 2 changes",
    )
    .option(
      "--verify-plan <file>",
      "compare with the reviewed plan (a plan, or the JSON or Markdown of its review) and print the differences; repeat for several stacks",
      repeated(String),
      [],
    )
    .option("--rules-url <url>", "URL of the folder with the rule pages, for links", folderUrl)
    .option(
      "--report-url <url>",
      "URL of the complete report, linked from a truncated comment",
      httpUrl,
    )
    .option("--today <date>", "date for the expiry of waivers, YYYY-MM-DD (default: today)", date)
    .addHelpText("after", helpText)
    .action(async (plans: readonly string[], options: ReviewArguments) => {
      const args = { ...options, plan: [...plans, ...options.plan] };
      output(await runReview(args));
    });
  registerSubcommands(command);
}

/** `clipstack review attest | check | converged`: ties the apply to the review. */
function registerSubcommands(command: Command): void {
  const subcommand = (
    name: string,
    description: string,
    run: (args: SubcommandArguments) => Promise<ReviewOutput>,
  ) =>
    command
      .command(`${name} <plans...>`)
      .description(description)
      .action(async (plans: readonly string[], _: unknown, self: Command) => {
        output(await run({ ...self.optsWithGlobals(), plan: plans } as SubcommandArguments));
      });
  subcommand(
    "attest",
    "review plans and print a signed attestation, unless the change is blocked",
    attest,
  ).requiredOption("--key <file>", "private Ed25519 key in PEM");
  subcommand("check", "verify that plans are those of an attestation, before the apply", check)
    .requiredOption("--key <file>", "public Ed25519 key in PEM")
    .requiredOption("--attestation <file>", "output of 'clipstack review attest'");
  subcommand("converged", "verify that a plan after the apply is empty", converged);
}

type SubcommandArguments = ReviewArguments & {
  readonly key: string;
  readonly attestation: string;
};

interface ReviewOutput {
  readonly text: string;
  readonly code: number;
}

function output({ text, code }: ReviewOutput): void {
  process.stdout.write(text);
  process.exitCode = code;
}

async function runReview(args: ReviewArguments): Promise<ReviewOutput> {
  if (args.verifyPlan.length > 0) return verifyReviewedPlans(args, readChanges(args));
  const result = await readAndReview(args).catch(async (error) => {
    if (args.github !== undefined) {
      await publishOnGithub({ comment: notReviewedComment(), isAccepted: false }, args.github);
    }
    throw error;
  });
  const unchanged = result.stacks.every(isUnchanged);
  for (const file of args.output) writeOutput(file, renderReview(result, formatOf(file), args));
  const format = args.json ? "json" : args.html ? "html" : "md";
  const code = exitCode(result, args);
  if (args.github !== undefined) {
    const comment = renderReview(result, "md", args);
    await publishOnGithub({ review: result, comment, isAccepted: code === 0 }, args.github);
  }
  const silent = unchanged && args.onlyChanges && code === 0;
  return {
    text: silent ? "" : renderReview(result, format, args),
    code: args.detailedExitcode && code === 0 && !unchanged ? 2 : code,
  };
}

async function readAndReview(args: ReviewArguments): Promise<Review> {
  return reviewChanges(readChanges(args), args);
}

async function reviewChanges(
  changes: readonly StackChange[],
  args: ReviewArguments,
): Promise<Review> {
  const settings = await readReviewSettings(args);
  const today = args.today ?? new Date().toISOString().slice(0, 10);
  const withGoals = changes.map((change): StackChange => {
    const { p99GoalMilliseconds: p99Milliseconds } = settings.ofStack(change.stack);
    return p99Milliseconds === undefined ? change : { ...change, goals: { p99Milliseconds } };
  });
  const findings = withGoals.flatMap((change): readonly RuleFinding[] =>
    findingsOfChange(change, {
      waivers: settings.ofStack(change.stack).waivers,
      rules: settings.rules,
      today,
    }),
  );
  return reviewOf(withGoals, { findings, predict: predictEnvironment });
}

async function attest(args: SubcommandArguments): Promise<ReviewOutput> {
  const plans = readPlans({ plan: args.plan });
  const result = await reviewChanges(
    plans.map(({ change }) => change),
    args,
  );
  const code = exitCode(result, args);
  const text =
    code === 0
      ? attestationOf(result, plans, readInput(args.key).text)
      : renderReview(result, "md", args);
  return { text, code };
}

async function check(args: SubcommandArguments): Promise<ReviewOutput> {
  const [key, attestation] = [args.key, args.attestation].map((file) => readInput(file).text);
  const problems = attestationProblems(
    attestation ?? "",
    readPlans({ plan: args.plan }),
    key ?? "",
  );
  return outcome(problems, "matches the attested review", "the plan is not the attested one:");
}

async function converged(args: SubcommandArguments): Promise<ReviewOutput> {
  const { stacks } = reviewOf(readChanges(args));
  const problems = stacks.flatMap(({ stack, changes, outputs, drift, ...rest }) => [
    ...changes.map(({ action, address }) => `${stack}: ${action} ${address}`),
    ...outputs.map((name) => `${stack}: output ${name}`),
    ...drift.map(({ address }) => `${stack}: ${address} changed outside of Terraform`),
    ...[...rest.notes, ...rest.limitations].map((line) => `${stack}: ${line}`),
  ]);
  return outcome(problems, "nothing is left to change", "the plan is not empty:");
}

function outcome(problems: readonly string[], success: string, failure: string): ReviewOutput {
  return problems.length === 0
    ? { text: `${success}\n`, code: 0 }
    : { text: `${[failure, ...problems.map((line) => `  ${line}`)].join("\n")}\n`, code: 1 };
}

/** Returns 1 if the verdict reaches the severity of `--fail-on`, or with `--drift` if there is drift. */
function exitCode({ verdict, stacks }: Review, { failOn, drift }: ReviewArguments): 0 | 1 {
  if (failOn === "never") return 0;
  if (drift) return stacks.some((stack) => stack.drift.length > 0) ? 1 : 0;
  const lowest = failOn === "error" ? "blocked" : "attention";
  return verdictLevels.indexOf(verdict.level) >= verdictLevels.indexOf(lowest) ? 1 : 0;
}

function verifyReviewedPlans(
  { verifyPlan }: ReviewArguments,
  fresh: readonly StackChange[],
): ReviewOutput {
  const differences = verifyPlans(verifyPlan.map(readInput), fresh);
  const names = fresh.map(({ stack }) => stack).join(", ");
  return outcome(
    differences,
    `${names}: matches the reviewed change`,
    "the plan differs from the reviewed change:",
  );
}

type Format = "md" | "html" | "json" | "sarif" | "xml";

function renderReview(result: Review, format: Format, args: ReviewArguments): string {
  const { rulesUrl, reportUrl } = args;
  switch (format) {
    case "json":
      return `${JSON.stringify(result, undefined, 2)}\n`;
    case "html":
      return htmlReport(result, { rulesUrl });
    case "sarif":
      return sarifReport(result, { rulesUrl });
    case "xml":
      return junitReport(result);
    case "md":
      return markdownComment(result, { rulesUrl, reportUrl });
  }
}

function formatOf(file: string): Format {
  return extname(file).slice(1) as Format;
}

const outputFile = textMatching(
  /\.(md|html|json|sarif|xml)$/,
  "It must end in .md, .html, .json, .sarif or .xml.",
);

function githubPlaces(text: string): readonly Publication[] {
  const places = text.split(",").filter((it) => it !== "" && it !== "none");
  const unknown = places.find((it) => !publications.some((known) => known === it));
  if (unknown !== undefined) throw new InvalidArgumentError(`It must not name '${unknown}'.`);
  return places as Publication[];
}

const httpUrl = textMatching(/^https?:\/\/\S+$/, "It must be a URL.");

function folderUrl(url: string): string {
  return httpUrl(url).replace(/\/?$/, "/");
}

function date(text: string): string {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text) || Number.isNaN(Date.parse(text))) {
    throw new InvalidArgumentError("It must be a date, as in 2026-11-30.");
  }
  return text;
}
