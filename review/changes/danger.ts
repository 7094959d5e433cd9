import type { ResourceChange } from "../input/change.ts";
import { isOneShot } from "../input/stack-facts.ts";
import type { Impact } from "./impact-kinds.ts";
import type { ReviewedChange } from "./stack-review.ts";

/** Returns whether a change is a harmless deployment step, such as a check or a one-shot container. */
export function isStep({ type, after, before }: ResourceChange, impact: Impact | undefined) {
  if (impact?.isForgotten) return false;
  const noHarm = impact === undefined || (impact.unavailable.length === 0 && !impact.dataLost);
  if (type === "terraform_data" || type === "null_resource") return noHarm;
  return type === "docker_container" && isOneShot(after ?? before) && noHarm;
}

/**
 * Danger of a change: 0 a service becomes unavailable; 1 data loss; 2 destroyed, removed from the state, interrupted, degraded or not
 * examined; 3 none of these.
 */
export function dangerOf(change: ReviewedChange): 0 | 1 | 2 | 3 {
  const { action, impact, isStep: step } = change;
  if (step) return 3;
  if (impact !== undefined && impact.unavailable.length > 0) return 0;
  if (impact?.dataLost) return 1;
  const replacesUnknown = action === "replace" && impact === undefined;
  const isWorse = impact?.degrades !== undefined || impact?.interrupts === true;
  const isHarmful = replacesUnknown || isWorse || change.unexamined !== undefined;
  return action === "delete" || impact?.isForgotten || isHarmful ? 2 : 3;
}

const dangers = ["delete", "replace", "forget", "update", "create", "no-op"];
/** Sorts by danger, destroys before replacements, deployment steps last. */
export function byDanger(a: ReviewedChange, b: ReviewedChange): number {
  const rank = (change: ReviewedChange) => [
    change.isStep ? 1 : 0,
    dangerOf(change) === 3 ? 1 : 0,
    dangers.indexOf(change.action),
    change.deposed === undefined ? 0 : 1,
    dangerOf(change),
  ];
  const [left, right] = [rank(a), rank(b)];
  const different = left.findIndex((value, index) => value !== right[index]);
  if (different >= 0) return left[different]! - right[different]!;
  return a.address < b.address ? -1 : 1;
}
