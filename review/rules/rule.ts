import type { Path, RuleFinding, Severity, StackChange } from "../input/change.ts";

/** Violation of a rule; `fix` replaces the rule's. */
export interface RuleMatch {
  readonly address?: string;
  readonly message: string;
  readonly fix?: string;
}

/** Difference between a passing and a failing stack. */
export type ExampleEdit = {
  /**
   * Path in the synthesized file, with the construct path in the stack as resource name:
   * `["resource", "docker_container", "embed/container", "read_only"]`.
   */
  readonly path: Path;
} & (
  | {
      /** Absent: the value is removed. */
      readonly failing?: unknown;
      /** Absent: the value of the stack. */
      readonly passing?: unknown;
    }
  | {
      /** Replaces `passingText`, or the reverse, in a text of the stack. */
      readonly failingText: string;
      readonly passingText: string;
    }
);

/** Shipped stack with edits. */
export interface Example {
  readonly stack: "single-gpu" | "multi-gpu-4x" | "kind-local" | "k8s-gpu";
  /** Settings that differ from the defaults, as YAML. */
  readonly settings?: string;
  readonly edits: readonly ExampleEdit[];
  /** First message for the failing example. */
  readonly message: string;
  readonly goals?: StackChange["goals"];
  /** Whether a resource was changed outside of Terraform. */
  readonly drift?: true;
}

/** Rule with the texts of its page. */
export interface ReviewRule {
  /** In kebab case; part of waivers and page addresses, so a rename is a breaking change. */
  readonly id: string;
  readonly severity: Severity;
  /** Requirement in one line. */
  readonly title: string;
  /** Consequence of a violation. */
  readonly rationale: string;
  /** Resources and attributes examined. */
  readonly inputs: string;
  /** How to fix a finding. */
  readonly fix: string;
  readonly example: Example;
  /** Pure; examines the stack after the change. */
  readonly find: (
    change: StackChange,
  ) => readonly Omit<RuleFinding, "rule" | "severity" | "stack">[];
}

export interface RuleText extends Omit<ReviewRule, "find"> {
  readonly find: (change: StackChange) => Iterable<RuleMatch>;
}

/** Applies a check to each item; the check returns messages, or nothing for an item that passes. */
export function each<Item extends { readonly address: string }>(
  itemsOf: (change: StackChange) => readonly Item[],
  judge: (item: Item, change: StackChange) => string | readonly string[] | undefined,
): RuleText["find"] {
  return (change) =>
    itemsOf(change).flatMap((item) =>
      [judge(item, change) ?? []].flat().map((message) => ({ address: item.address, message })),
    );
}

/** Rule whose matches have its fix by default. */
export function rule({ find, ...text }: RuleText): ReviewRule {
  return {
    ...text,
    find: (change) => [...find(change)].map((match) => ({ fix: text.fix, ...match })),
  };
}
