import type { RuleFinding, Severity, StackChange } from "../input/change.ts";

/** Violation of a rule; `fix` replaces the rule's. */
export interface RuleMatch {
  readonly address?: string;
  readonly message: string;
  readonly fix?: string;
}

/** Rule of a review. Its requirement, its rationale and an example are in its page, `docs/rules/<id>.md`. */
export interface ReviewRule {
  /** In kebab case; part of waivers and page addresses, so a rename is a breaking change. */
  readonly id: string;
  readonly severity: Severity;
  /** How to fix a finding. */
  readonly fix: string;
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
