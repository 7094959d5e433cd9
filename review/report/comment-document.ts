import { dangerOf } from "../changes/danger.ts";
import { countNames, type Review, type StackReview } from "../changes/stack-review.ts";
import { needsAttention, planningFailed } from "../changes/verdict.ts";
import { omitsFiles } from "../input/document-change.ts";
import { few } from "../input/stack-facts.ts";
import { type Block, heading, type Level, listOf, plural, type Text } from "./comment-blocks.ts";
import { capacitySection, servingSection } from "./comment-capacity.ts";
import { actionWord, changeSection, differenceSection } from "./comment-changes.ts";
import {
  driftSection,
  exposureSection,
  limitationSection,
  ruleSection,
} from "./comment-findings.ts";

export interface DocumentOptions {
  readonly level: Level;
  /** URL of the folder with the rule pages, with a trailing slash. */
  readonly rulesUrl?: string;
  /** URL of the full report, for a shortened comment. */
  readonly reportUrl?: string;
}

const verdictTitles = {
  safe: "✅ Safe",
  attention: "⚠️ Needs attention",
  blocked: "⛔ Blocked",
} as const;

const maxReasons = 12;

/** Content of a review as blocks. */
export function documentOf(review: Review, options: DocumentOptions): readonly Block[] {
  const { level, rulesUrl } = options;
  const { verdict, stacks } = review;
  return [
    heading(2, `${titleOf(review)}: ${headline(review)}`),
    ...listOf(
      verdict.reasons.slice(0, maxReasons).map((reason) => [reason]),
      verdict.reasons.length - maxReasons,
    ),
    ...(level === "full" ? [] : [shortened(options)]),
    countTable(stacks, level),
    ...changeSection(stacks, level),
    ...capacitySection(stacks, level),
    ...servingSection(stacks, level),
    ...exposureSection(stacks, level),
    ...(level === "full" ? differenceSection(stacks) : []),
    ...ruleSection(stacks, level, rulesUrl),
    ...driftSection(stacks, level),
    ...limitationSection(stacks, level),
  ];
}

/** Qualifies a safe verdict if files were not compared. */
function titleOf({ verdict, stacks }: Review): string {
  const isPartial = stacks.some(({ limitations }) => omitsFiles(limitations));
  const exception =
    verdict.level === "safe" && isPartial ? ", except for files that were not compared" : "";
  return `${verdictTitles[verdict.level]}${exception}`;
}

function shortened({ level, reportUrl }: DocumentOptions): Block {
  const fullReport: Text =
    reportUrl === undefined
      ? ["the full report (", { code: "clipstack review --html" }, " or ", { code: "--json" }, ")"]
      : [{ link: reportUrl, text: "the full report" }];
  const content =
    level === "attention"
      ? "changes that need attention are listed, the others counted"
      : "counts only";
  return {
    kind: "text",
    text: [
      { strong: "Shortened" },
      ` to fit the size limit of a comment: ${content}. See `,
      ...fullReport,
      ".",
    ],
  };
}

export function isUnchanged({ changes, drift, outputs, notes }: StackReview): boolean {
  return [changes, drift, outputs, notes].every((list) => list.length === 0);
}

function headline({ verdict, stacks }: Review): string {
  const changing = stacks.filter((stack) => stack.changes.length > 0);
  if (changing.length === 0) {
    const failed = stacks.filter(planningFailed).map(({ stack }) => stack);
    if (failed.length > 0) return `planning of ${few(failed)} failed`;
    const outputs = stacks.filter((it) => it.outputs.length > 0);
    if (outputs.length > 0) {
      const names = [...new Set(outputs.flatMap((it) => it.outputs))];
      return `${few(outputs.map(({ stack }) => stack))}: no resource changes, only ${names.length === 1 ? "the output" : "the outputs"} ${few(names)}`;
    }
    const summary = verdict.level === "safe" ? "nothing changes" : "no resource changes";
    return stacks.length === 1 ? `${stacks[0]?.stack}: ${summary}` : summary;
  }
  const changes = changing.flatMap((stack) => stack.changes);
  const words = { delete: "destroyed", replace: "replaced", update: "updated", create: "created" };
  const parts = Object.entries(words)
    .map(([name, word]) => {
      const count = changes.filter(({ action, isStep }) => action === name && !isStep).length;
      return count === 0 ? "" : `${count} ${word}`;
    })
    .filter((part) => part !== "");
  const steps = changes.filter(({ isStep }) => isStep).length;
  const names =
    changing.length <= 3
      ? changing.map(({ stack }) => stack).join(", ")
      : `${changing.length} stacks`;
  const all = [...parts, ...(steps === 0 ? [] : [plural(steps, "deployment step")])];
  return all.length === 0 ? `${names}: no resource changes` : `${names}: ${all.join(", ")}`;
}

/** Maximum number of rows if `level` is `counts`. */
const maxStacks = 100;

/** Table with a row for each stack. Unless `level` is `full`, one row sums up all stacks that need no attention or exceed the limit. */
function countTable(stacks: readonly StackReview[], level: Level): Block {
  // rare columns only if not empty, so that the table fits a phone
  const always = new Set(["delete", "replace", "update", "create", "unchanged"]);
  const shown = countNames.filter(
    (name) => always.has(name) || stacks.some(({ counts }) => counts[name] > 0),
  );
  const cells = (count: (name: (typeof countNames)[number]) => number) =>
    shown.map((name): Text => {
      const text = String(count(name));
      const isDangerous = count(name) > 0 && (name === "delete" || name === "replace");
      return [isDangerous ? { strong: text } : text];
    });
  const listed = new Set(
    level === "full"
      ? stacks
      : [...stacks]
          .filter(needsAttention)
          .sort(byWorst)
          .slice(0, level === "counts" ? maxStacks : stacks.length),
  );
  const others = stacks.filter((stack) => !listed.has(stack));
  const sourceText = ({ source, engine, terraformVersion }: StackReview) =>
    source === "synthesis"
      ? "two synthesized configurations"
      : `plan of ${[engine ?? "Terraform", terraformVersion].join(" ").trim()}`;
  const otherRow = [
    [listed.size === 0 ? plural(others.length, "stack") : `${others.length} more`],
    ...cells((name) => others.reduce((sum, { counts }) => sum + counts[name], 0)),
    [""],
  ];
  return {
    kind: "table",
    head: [["stack"], ...shown.map((name) => [actionWord(name)]), ["source"]],
    rows: [
      ...stacks
        .filter((stack) => listed.has(stack))
        .map((stack) => [
          [{ code: stack.stack }],
          ...cells((name) => stack.counts[name]),
          [sourceText(stack)],
        ]),
      ...(others.length === 0 ? [] : [otherRow]),
    ],
  };
}

/** Sorts by the most dangerous change, then by the number of dangerous changes. */
function byWorst(a: StackReview, b: StackReview): number {
  const [left, right] = [a, b].map(({ changes }) => changes.map(dangerOf));
  const worst = (all: readonly number[] = []) =>
    all.reduce((least, danger) => Math.min(least, danger), 4);
  const dangerous = (all: readonly number[] = []) => all.filter((it) => it < 3).length;
  return (
    worst(left) - worst(right) || dangerous(right) - dangerous(left) || (a.stack < b.stack ? -1 : 1)
  );
}
