import { few } from "../input/stack-facts.ts";
import { gapTexts } from "./coverage.ts";
import { newExposures } from "./exposure.ts";
import type { StackReview } from "./stack-review.ts";

export const verdictLevels = ["safe", "attention", "blocked"] as const;

export interface Verdict {
  readonly level: (typeof verdictLevels)[number];
  /** Sentences, worst first; empty if safe. */
  readonly reasons: readonly string[];
}

/** Verdict on all stacks of a review. */
export function verdictOf(stacks: readonly Omit<StackReview, "verdict">[]): Verdict {
  const blocking = worstFirst(stacks, blockers);
  const worth = worstFirst(stacks, worthAttention);
  return {
    level: blocking.length > 0 ? "blocked" : worth.length > 0 ? "attention" : "safe",
    reasons: [...blocking, ...worth],
  };
}

/** Interleaves the stacks' reasons by rank, because a service lost in the last stack outweighs a warning in the first. */
function worstFirst(
  stacks: readonly StackReview[],
  linesOf: (stack: StackReview) => readonly string[],
): readonly string[] {
  const all = stacks.map((stack) =>
    linesOf(stack).map((line) => line && `${stack.stack}: ${line}`),
  );
  const most = Math.max(0, ...all.map(({ length }) => length));
  return Array.from({ length: most }, (_, rank) => all.map((lines) => lines[rank] ?? ""))
    .flat()
    .filter((line) => line !== "");
}

/** Sentences by rank of severity; empty if not applicable. */
function blockers({ findings, limitations }: StackReview): readonly string[] {
  const errors = findings.filter(isOpen("error")).filter(({ existing }) => existing !== true);
  return [
    errors.length === 0 ? "" : `${rulesText(errors)} violated: ${names(errors)}.`,
    ...limitations.filter(isPlanningFailure),
  ];
}

function isPlanningFailure(line: string): boolean {
  return line.startsWith("Planning failed");
}

/** Whether planning failed. */
export function planningFailed({ limitations }: StackReview): boolean {
  return limitations.some(isPlanningFailure);
}

/** Whether a stack alone would have a verdict other than safe. */
export function needsAttention(review: StackReview): boolean {
  return [...blockers(review), ...worthAttention(review)].some((line) => line !== "");
}

/** Reasons for needing attention, in the format of {@link blockers}. */
function worthAttention(review: StackReview): readonly string[] {
  const { changes, exposures, findings, drift } = review;
  const down = new Set(changes.flatMap(({ impact }) => impact?.unavailable ?? []));
  const gone = new Set(
    changes.flatMap(({ action, impact }) =>
      action === "delete" || impact?.permanent ? (impact?.unavailable ?? []) : [],
    ),
  );
  // another resource may serve the same afterwards
  for (const { service } of review.capacity.after?.replicas ?? []) gone.delete(service);
  const back = [...down].filter((name) => !gone.has(name));
  const lost = changes.filter(({ impact }) => impact?.dataLost === true);
  const open = newExposures(exposures);
  const warnings = findings.filter(isOpen("warning")).filter(({ existing }) => existing !== true);
  const deleted = changes.filter(({ action, isStep }) => action === "delete" && !isStep);
  const opened = changes.filter(({ impact }) => impact?.degrades === "access");
  const forgotten = changes.filter(({ action }) => action === "forget");
  const waits = changes.filter(({ impact }) => impact?.interrupts === true);
  const waiting = waits.filter(({ action }) => action === "replace");
  const perhaps = waits.filter(({ action }) => action === "update");
  const waived = findings.filter(
    (it) => it.severity === "error" && it.waived !== undefined && it.existing !== true,
  );
  return [
    gone.size > 0
      ? `${few([...gone].sort())} ${gone.size === 1 ? "becomes" : "become"} permanently unavailable.`
      : "",
    back.length > 0
      ? `${few(back.sort())} ${back.length === 1 ? "is" : "are"} temporarily unavailable.`
      : "",
    fewerText(review),
    lost.length > 0
      ? `${few(lost.map(({ title }) => title))}: ${lost.length === 1 ? "its content is" : "their contents are"} lost.`
      : "",
    gone.size === 0 && deleted.length > 0
      ? `${countText(deleted.length, "resource")} destroyed.`
      : "",
    waiting.length > 0
      ? `${few(waiting.map(({ title }) => title))}: unavailable until recreated.`
      : "",
    perhaps.length > 0
      ? `${few(perhaps.map(({ title }) => title))}: may be temporarily unavailable.`
      : "",
    forgotten.length > 0
      ? `${countText(forgotten.length, "resource")} removed from the state but not destroyed: no longer managed.`
      : "",
    opened.length > 0
      ? `${few(opened.map(({ title }) => title))}: permissions or network access change.`
      : "",
    waived.length > 0
      ? `${rulesText(waived)} violated by this change but waived: ${names(waived)}.`
      : "",
    open.length > 0
      ? `${few([...new Set(open.map(({ name }) => name))])}: ${few(open.map(({ description }) => description))} (new exposure).`
      : "",
    unexaminedText(review),
    warnings.length > 0
      ? `${rulesText(warnings)} violated (severity warning): ${names(warnings)}.`
      : "",
    drift.length > 0 ? `${countText(drift.length, "resource")} changed outside of Terraform.` : "",
    ...review.notes,
    ...review.limitations.filter((line) => line.startsWith("The plan is incomplete")),
  ];
}

/** Resources of a change that some statements of the review do not cover. */
function unexaminedText({ coverage: { unexamined } }: StackReview): string {
  const changed = unexamined.filter(({ changes }) => changes);
  return gapTexts(changed, undefined, (count) =>
    count === 1 ? "changes but was not examined" : "change but were not examined",
  ).join(" ");
}

/** Services with lower replica bounds, or other workloads with less capacity. */
function fewerText({ capacity: { before, after }, changes }: StackReview): string {
  const services = (after?.replicas ?? []).flatMap(({ service, min, max }) => {
    const was = before?.replicas.find((it) => it.service === service);
    if (was === undefined || (min >= was.min && max >= was.max)) return [];
    return [`${service} (${boundsText({ min, max })} instead of ${boundsText(was)})`];
  });
  const others = changes
    .filter(({ impact }) => impact?.degrades === "capacity")
    .map(({ title }) => title);
  const all = services.length > 0 ? services : others;
  return all.length > 0 ? `Less capacity: fewer pods of ${few(all)}.` : "";
}

function boundsText({ min, max }: { readonly min: number; readonly max: number }): string {
  return min === max ? String(min) : `${min} to ${max}`;
}

function isOpen(severity: "error" | "warning") {
  return (finding: StackReview["findings"][number]) =>
    finding.severity === severity && finding.waived === undefined;
}

function names(findings: StackReview["findings"]): string {
  return few([...new Set(findings.map(({ rule }) => rule))]);
}

/** `2 rules are`, `2 rules (9 findings) are` */
function rulesText(findings: StackReview["findings"]): string {
  const rules = new Set(findings.map(({ rule }) => rule)).size;
  const places = findings.length > rules ? ` (${findings.length} findings)` : "";
  return `${rules} ${rules === 1 ? "rule" : "rules"}${places} ${rules === 1 ? "is" : "are"}`;
}

function countText(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? " is" : "s are"}`;
}
