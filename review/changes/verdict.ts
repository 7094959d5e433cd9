import { few } from "../input/stack-facts.ts";
import { gapTexts } from "./coverage.ts";
import { newExposures } from "./exposure.ts";
import type { ReviewedChange, StackReview, Verdict } from "./stack-review.ts";

export function verdictOf(stacks: readonly Omit<StackReview, "verdict">[]): Verdict {
  const blocking = worstFirst(stacks, blockers);
  const attention = worstFirst(stacks, attentionReasons);
  return {
    level: blocking.length > 0 ? "blocked" : attention.length > 0 ? "attention" : "safe",
    reasons: [...blocking, ...attention],
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
  const ranks = Math.max(0, ...all.map(({ length }) => length));
  return Array.from({ length: ranks }, (_, rank) => all.map((lines) => lines[rank] ?? ""))
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

export function planningFailed({ limitations }: StackReview): boolean {
  return limitations.some(isPlanningFailure);
}

/** Returns whether a stack alone would have a verdict other than safe. */
export function needsAttention(review: StackReview): boolean {
  return [...blockers(review), ...attentionReasons(review)].some((line) => line !== "");
}

/** Reasons for needing attention, in the format of {@link blockers}. */
function attentionReasons(review: StackReview): readonly string[] {
  return [
    ...impactReasons(review),
    ...findingReasons(review),
    ...review.notes,
    ...review.limitations.filter((line) => line.startsWith("The plan is incomplete")),
  ];
}

function impactReasons(review: StackReview): readonly string[] {
  const { changes } = review;
  const subjects = (matches: (change: ReviewedChange) => boolean) =>
    changes.filter(matches).map(({ subject }) => subject);
  const { permanent, temporary } = unavailableServices(review);
  const deleted = changes.filter(({ action, isStep }) => action === "delete" && !isStep);
  const interrupted = (action: ReviewedChange["action"]) =>
    subjects((change) => change.action === action && change.impact?.interrupts === true);
  return [
    about(permanent, " becomes permanently unavailable.", " become permanently unavailable."),
    about(temporary, " is temporarily unavailable.", " are temporarily unavailable."),
    lessCapacityText(review),
    gpuText(review),
    about(
      subjects(({ impact }) => impact?.dataLost === true),
      ": its content is lost.",
      ": their contents are lost.",
    ),
    permanent.length === 0 && deleted.length > 0
      ? `${countText(deleted.length, "resource")} destroyed.`
      : "",
    about(interrupted("replace"), ": unavailable until recreated."),
    about(interrupted("update"), ": may be temporarily unavailable."),
    about(
      subjects(({ impact }) => impact?.isForgotten === true),
      " is removed from the state but not destroyed: no longer managed.",
      " are removed from the state but not destroyed: no longer managed.",
    ),
    about(
      subjects(({ impact }) => impact?.degrades === "access"),
      ": permissions or network access change.",
    ),
  ];
}

function findingReasons(review: StackReview): readonly string[] {
  const { drift } = review;
  const findings = review.findings.filter(({ existing }) => existing !== true);
  const waived = findings.filter((it) => it.severity === "error" && it.waived !== undefined);
  const warnings = findings.filter(isOpen("warning"));
  const exposures = newExposures(review.exposures);
  return [
    waived.length > 0
      ? `${rulesText(waived)} violated by this change but waived: ${names(waived)}.`
      : "",
    exposures.length > 0
      ? `${few([...new Set(exposures.map(({ name }) => name))])}: ${few(exposures.map(({ description }) => description))} (new exposure).`
      : "",
    unexaminedText(review),
    warnings.length > 0
      ? `${rulesText(warnings)} violated (severity warning): ${names(warnings)}.`
      : "",
    drift.length > 0 ? `${countText(drift.length, "resource")} changed outside of Terraform.` : "",
  ];
}

/** Names of the services that become unavailable. */
function unavailableServices({ changes, capacity }: StackReview) {
  const namesIn = (all: readonly ReviewedChange[]) =>
    new Set(all.flatMap(({ impact }) => impact?.unavailable ?? []));
  const permanent = namesIn(
    changes.filter(({ action, impact }) => action === "delete" || impact?.permanent),
  );
  // another resource may serve the same afterwards
  for (const { service } of capacity.after?.replicas ?? []) permanent.delete(service);
  const temporary = [...namesIn(changes)].filter((name) => !permanent.has(name));
  return { permanent: [...permanent].sort(), temporary: temporary.sort() };
}

/** Builds a sentence about resources or services; empty without any. The given ending starts with its space or colon. */
function about(subjects: readonly string[], singular: string, plural = singular): string {
  if (subjects.length === 0) return "";
  return `${few(subjects)}${subjects.length === 1 ? singular : plural}`;
}

/** Resources of a change that some statements of the review do not cover. */
function unexaminedText({ coverage: { unexamined } }: StackReview): string {
  const changed = unexamined.filter(({ changes }) => changes);
  const named = changed.map(({ name, ...it }) => ({ ...it, name, address: name }));
  return gapTexts(named, undefined, (count) =>
    count === 1 ? "changes but was not examined" : "change but were not examined",
  ).join(" ");
}

/** Names the services whose replica bounds decrease, and other workloads with less capacity. */
function lessCapacityText({ capacity: { before, after }, changes }: StackReview): string {
  const services = (after?.replicas ?? []).flatMap(({ service, min, max }) => {
    const old = before?.replicas.find((it) => it.service === service);
    if (old === undefined || (min >= old.min && max >= old.max)) return [];
    return [`${service} (${boundsText({ min, max })} instead of ${boundsText(old)})`];
  });
  const others = changes
    .filter(({ impact }) => impact?.degrades === "capacity")
    .map(({ subject }) => subject);
  const all = services.length > 0 ? services : others;
  return all.length > 0 ? `Less capacity: fewer pods of ${few(all)}.` : "";
}

/** Lower throughput of the GPUs, and a higher cost. */
function gpuText({ capacity: { before, after } }: StackReview): string {
  const [old, rate] = [before, after].map(
    (it) => it?.gpuImagesPerSecond ?? it?.imagesPerSecond ?? Number.NaN,
  ) as [number, number];
  const isSlower = rate < old * 0.9;
  const [oldCost = 0, cost = 0] = [before?.usdPerHour, after?.usdPerHour];
  const isCostlier = before !== undefined && cost > oldCost * 1.1;
  const slower = `The GPUs compute ${Math.round((rate / old) * 100)} % of the images per second (predicted ${Math.round(rate)} instead of ${Math.round(old)})`;
  const costlier = `cost rises to $${Number(cost.toFixed(2))} per hour from $${Number(oldCost.toFixed(2))}`;
  if (!isSlower && !isCostlier) return "";
  if (!isSlower) return `${costlier.replace("cost", "Cost")}.`;
  return `${slower}${isCostlier ? `; ${costlier}` : ""}.`;
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
  const count = findings.length > rules ? ` (${findings.length} findings)` : "";
  return `${rules} ${rules === 1 ? "rule" : "rules"}${count} ${rules === 1 ? "is" : "are"}`;
}

function countText(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? " is" : "s are"}`;
}
