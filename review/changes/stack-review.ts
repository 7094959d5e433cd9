import type { Action, RuleFinding, StackChange } from "../input/change.ts";
import type { CapacityChange } from "./capacity.ts";
import type { Coverage, Topic } from "./coverage.ts";
import type { DiffBlock } from "./diff-line.ts";
import type { Exposure } from "./exposure.ts";
import type { Impact } from "./impact-kinds.ts";
import type { ServingChange } from "./serving.ts";

export const verdictLevels = ["safe", "attention", "blocked"] as const;

export interface Verdict {
  readonly level: (typeof verdictLevels)[number];
  /** Sentences, worst first; empty if safe. */
  readonly reasons: readonly string[];
}

/** Content of a review comment, without secrets. */
export interface Review {
  /** Incremented when a field changes meaning. */
  readonly schema: 2;
  readonly verdict: Verdict;
  /** Sorted by name. */
  readonly stacks: readonly StackReview[];
}

export interface StackReview {
  readonly stack: string;
  readonly source: StackChange["source"];
  /** Program that created the plan. */
  readonly engine?: StackChange["engine"];
  readonly terraformVersion?: string;
  readonly counts: Counts;
  /** Most dangerous first. */
  readonly changes: readonly ReviewedChange[];
  readonly capacity: CapacityChange;
  readonly serving: readonly ServingChange[];
  readonly exposures: readonly Exposure[];
  readonly coverage: Coverage;
  readonly findings: readonly RuleFinding[];
  /** Resources changed outside of Terraform. */
  readonly drift: readonly ReviewedDrift[];
  readonly limitations: readonly string[];
  /** Terraform outputs that change. */
  readonly outputs: readonly string[];
  /** Sentences about effects beyond resource changes. */
  readonly notes: readonly string[];
  /** SHA-256 of the planned changes without secrets. */
  readonly fingerprint: string;
}
export const countNames = [
  "delete",
  "replace",
  "update",
  "create",
  "forget",
  "move",
  "import",
  "drift",
  "unchanged",
] as const;
export type Counts = Readonly<Record<(typeof countNames)[number], number>>;
export interface ReviewedChange {
  readonly address: string;
  /** `triton-trt/container` */
  readonly title: string;
  /** Its name in sentences: `triton-trt`, `volume engines`. */
  readonly subject: string;
  readonly type: string;
  readonly action: Exclude<Action, "no-op" | "read">;
  readonly createBeforeDestroy?: boolean;
  /** Terraform's key of an object left over from an earlier replacement. */
  readonly deposed?: string;
  /** Attributes that force the replacement, with their changes. */
  readonly forcedBy: readonly string[];
  /** Sentence that explains Terraform's reason, if the attributes do not. */
  readonly reason?: string;
  readonly movedFrom?: string;
  readonly imported?: boolean;
  readonly impact?: Impact;
  readonly diffs: readonly DiffBlock[];
  /** Statements of the review that do not cover it. */
  readonly unexamined?: readonly Topic[];
  /** Whether this is a deployment step without effect on running services. */
  readonly isStep: boolean;
}
export interface ReviewedDrift {
  readonly address: string;
  readonly action: Action;
  readonly diffs: readonly DiffBlock[];
}
