import type { Action, RuleFinding, StackChange } from "../input/change.ts";
import type { CapacityChange } from "./capacity.ts";
import type { Coverage, Topic } from "./coverage.ts";
import type { DiffBlock } from "./diff-line.ts";
import type { Exposure } from "./exposure.ts";
import type { Impact } from "./impact-kinds.ts";
import type { ServingChange } from "./serving.ts";

export interface StackReview {
  readonly stack: string;
  readonly source: StackChange["source"];
  readonly terraformVersion?: string;
  readonly counts: Counts;
  /** The most dangerous first. */
  readonly changes: readonly ReviewedChange[];
  readonly capacity: CapacityChange;
  readonly serving: readonly ServingChange[];
  readonly exposures: readonly Exposure[];
  readonly coverage: Coverage;
  readonly findings: readonly RuleFinding[];
  /** Addresses of what was changed outside of Terraform, and what is different there. */
  readonly drift: readonly ReviewedDrift[];
  readonly limitations: readonly string[];
  /** Terraform outputs that change. */
  readonly outputs: readonly string[];
  /** Whole sentences: what a plan says besides its resources, and a reader must know. */
  readonly notes: readonly string[];
  /** SHA-256 of what changes, secrets left out: another plan has another one. */
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
  readonly type: string;
  readonly action: Exclude<Action, "no-op" | "read">;
  readonly createBeforeDestroy?: boolean;
  /** Not what stands at the address, but what an earlier replacement left there: Terraform's key of it. */
  readonly deposed?: string;
  /** What forces the replacement, with its values. */
  readonly forcedBy: readonly string[];
  /** A sentence: why Terraform does it, where the configuration does not say it. */
  readonly reason?: string;
  readonly movedFrom?: string;
  readonly imported?: boolean;
  readonly impact?: Impact;
  readonly diffs: readonly DiffBlock[];
  /** Statements of the review that do not cover it. */
  readonly unexamined?: readonly Topic[];
  /** A step of the deployment, and nothing that anybody uses. */
  readonly isStep: boolean;
}
export interface ReviewedDrift {
  readonly address: string;
  readonly action: Action;
  readonly diffs: readonly DiffBlock[];
}
