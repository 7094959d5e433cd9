import type { Path, RuleFinding, Severity, StackChange } from "../input/change.ts";

/** One violation found by a rule, with its own fix if it differs from the rule's. */
export interface RuleMatch {
  readonly address?: string;
  readonly message: string;
  readonly fix?: string;
}

/** One difference between a stack that passes and one that does not. */
export type ExampleEdit = {
  /**
   * Where in the synthesized file. The name of a resource is the path of its construct in the stack:
   * `["resource", "docker_container", "embed/container", "read_only"]`.
   */
  readonly path: Path;
} & (
  | {
      /** Left out: there is no such thing. */
      readonly failing?: unknown;
      /** Left out: what the stack has. */
      readonly passing?: unknown;
    }
  | {
      /** Part of a text that the stack has, and what stands there in its place. */
      readonly failingText: string;
      readonly passingText: string;
    }
);

/** A real stack with one thing changed. */
export interface Example {
  readonly stack: "single-gpu" | "multi-gpu-4x" | "kind-local" | "k8s-gpu";
  /** Settings of the stack, as YAML; what they leave out has its default. */
  readonly settings?: string;
  readonly edits: readonly ExampleEdit[];
  /** First message for the failing example. */
  readonly message: string;
  readonly goals?: StackChange["goals"];
  /** What differed from the state before the change. */
  readonly drift?: true;
}

/** Rule with the texts of its page. */
export interface ReviewRule {
  /** In kebab case. Waivers and page addresses contain it, so a rename is a breaking change. */
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

/** Finds what a judge says of each item; a judge returns nothing for an item that passes. */
export function each<Item extends { readonly address: string }>(
  itemsOf: (change: StackChange) => readonly Item[],
  judge: (item: Item, change: StackChange) => string | readonly string[] | undefined,
): RuleText["find"] {
  return (change) =>
    itemsOf(change).flatMap((item) =>
      [judge(item, change) ?? []].flat().map((message) => ({ address: item.address, message })),
    );
}

/** A rule whose findings are fixed as its page says, unless they say more. */
export function rule({ find, ...text }: RuleText): ReviewRule {
  return {
    ...text,
    find: (change) => [...find(change)].map((match) => ({ fix: text.fix, ...match })),
  };
}
