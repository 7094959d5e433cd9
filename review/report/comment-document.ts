import { dangerOf } from "../changes/danger.ts";
import { countNames, type StackReview } from "../changes/stack-review.ts";
import { needsAttention, planningFailed } from "../changes/verdict.ts";
import { omitsFiles } from "../input/document-change.ts";
import { few } from "../input/stack-facts.ts";
import type { Review } from "../review.ts";
import { type Block, heading, type Level, listOf, plural, type Text } from "./comment-blocks.ts";
import { capacitySection, servingSection } from "./comment-capacity.ts";
import { actionWord, changeSection, differenceSection } from "./comment-changes.ts";
import {
  driftSection,
  exposureSection,
  limitationSection,
  ruleSection,
} from "./comment-findings.ts";

/** Content of a review as blocks. */

export interface DocumentOptions {
  readonly level: Level;
  /** Address of the folder with the pages of the rules, with a slash at its end. */
  readonly rulesUrl?: string;
  /** Where the whole report is, for a comment that is shortened. */
  readonly reportUrl?: string;
}

export const verdictTitles = {
  safe: "✅ Safe",
  attention: "⚠️ Needs attention",
  blocked: "⛔ Blocked",
} as const;

/** Maximum number of listed reasons. */
const maxReasons = 12;

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
  const bounds =
    verdict.level === "safe" && isPartial ? ", except for files that were not compared" : "";
  return `${verdictTitles[verdict.level]}${bounds}`;
}

function shortened({ level, reportUrl }: DocumentOptions): Block {
  const whole: Text =
    reportUrl === undefined
      ? ["the full report (", { code: "clipstack review --html" }, " or ", { code: "--json" }, ")"]
      : [{ link: reportUrl, text: "the full report" }];
  const left =
    level === "attention"
      ? "changes that need attention are listed, the others counted"
      : "counts only";
  return {
    kind: "text",
    text: [
      { strong: "Shortened" },
      ` to fit the size limit of a comment: ${left}. See `,
      ...whole,
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
    const broken = stacks.filter(planningFailed).map(({ stack }) => stack);
    if (broken.length > 0) return `planning ${few(broken)} failed`;
    const outputs = stacks.filter((it) => it.outputs.length > 0);
    if (outputs.length > 0) {
      const names = [...new Set(outputs.flatMap((it) => it.outputs))];
      return `${few(outputs.map(({ stack }) => stack))}: no resource changes, but the output ${few(names)}`;
    }
    const what = verdict.level === "safe" ? "nothing changes" : "no resource changes";
    return stacks.length === 1 ? `${stacks[0]?.stack}: ${what}` : what;
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
  const also = steps === 0 ? [] : [plural(steps, "deployment step")];
  const all = [...parts, ...also];
  return all.length === 0 ? `${names}: no resource changes` : `${names}: ${all.join(", ")}`;
}

/** Stacks with a row of their own where only counts are given. */
const maxStacks = 100;

/** A row for each stack; without `full` detail one row together for those that need no attention, or are beyond the limit. */
function countTable(stacks: readonly StackReview[], level: Level): Block {
  // rare columns only where something is counted, so that the table fits a telephone
  const always = new Set(["delete", "replace", "update", "create", "unchanged"]);
  const shown = countNames.filter(
    (name) => always.has(name) || stacks.some(({ counts }) => counts[name] > 0),
  );
  const cells = (count: (name: (typeof countNames)[number]) => number) =>
    shown.map((name): Text => {
      const text = String(count(name));
      const loud = count(name) > 0 && (name === "delete" || name === "replace");
      return [loud ? { strong: text } : text];
    });
  const own = new Set(
    level === "full"
      ? stacks
      : [...stacks]
          .filter(needsAttention)
          .sort(byWorst)
          .slice(0, level === "counts" ? maxStacks : stacks.length),
  );
  const others = stacks.filter((stack) => !own.has(stack));
  const from = ({ source, terraformVersion: version }: StackReview) =>
    source === "synthesis"
      ? "two synthesized configurations"
      : `a plan${version === undefined ? "" : ` of Terraform ${version}`}`;
  const otherRow = [
    [own.size === 0 ? plural(others.length, "stack") : `${others.length} more`],
    ...cells((name) => others.reduce((sum, { counts }) => sum + counts[name], 0)),
    [""],
  ];
  return {
    kind: "table",
    head: [["stack"], ...shown.map((name) => [actionWord(name)]), ["from"]],
    rows: [
      ...stacks
        .filter((stack) => own.has(stack))
        .map((stack) => [
          [{ code: stack.stack }],
          ...cells((name) => stack.counts[name]),
          [from(stack)],
        ]),
      ...(others.length === 0 ? [] : [otherRow]),
    ],
  };
}

/** Stacks with the worst change first, then those with the most of them. */
function byWorst(a: StackReview, b: StackReview): number {
  const [left, right] = [a, b].map(({ changes }) => changes.map(dangerOf));
  const worst = (all: readonly number[] = []) => all.reduce((one, two) => Math.min(one, two), 4);
  const many = (all: readonly number[] = []) => all.filter((it) => it < 3).length;
  return worst(left) - worst(right) || many(right) - many(left) || (a.stack < b.stack ? -1 : 1);
}
