/**
 * What a change does, whatever it was read from: a Terraform plan, or two synthesized trees. The comment and the rules know
 * only this.
 */

/** Terraform's actions of one resource; a replacement is one action, whichever half comes first. */
export const actions = [
  "delete",
  "replace",
  "update",
  "create",
  "forget",
  "read",
  "no-op",
] as const;
export type Action = (typeof actions)[number];

/** Steps into a value: attribute names, and indexes of lists. */
export type Path = readonly (string | number)[];

export interface ResourceChange {
  /** `docker_container.embed`: Terraform's address, with its module. */
  readonly address: string;
  readonly type: string;
  readonly name: string;
  /** Path of its construct in the stack, where the synthesized file says it: `single-gpu/embed/container`. */
  readonly constructPath?: string;
  /** Namespace and name of its provider, if known: `hashicorp/aws`. */
  readonly provider?: string;
  /** Commands that its provisioners run, secrets in place; empty text for other provisioners than `local-exec`. */
  readonly programs?: readonly string[];
  readonly mode: "managed" | "data";
  readonly action: Action;
  /** Terraform's own words for it, in its order. */
  readonly actions?: readonly string[];
  /** What an earlier replacement left behind, by Terraform's key: not the object that stands at the address. */
  readonly deposed?: string;
  /** Of a replacement: the new one is made first. */
  readonly createBeforeDestroy?: boolean;
  /**
   * Values before and after, secrets in place: nothing but {@link mask} may print them. `undefined`: it is not there then.
   */
  readonly before?: Values;
  readonly after?: Values;
  /** Of `after`: what is known only once it is applied. */
  readonly unknown: readonly Path[];
  /** What Terraform marks as sensitive, or this project knows to be secret, in either. */
  readonly sensitive: readonly Path[];
  /** Attributes that force the replacement. Of synthesized trees: those known to. */
  readonly replacePaths: readonly Path[];
  /** Terraform's own word for why, as `action_reason`. */
  readonly reason?: string;
  /** Address that it had before: it is moved, not made again. */
  readonly movedFrom?: string;
  readonly imported?: boolean;
  /** Of a container: address of the `docker_image` that it runs. */
  readonly imageResource?: string;
}

export type Values = Readonly<Record<string, unknown>>;

export interface StackChange {
  /** Name of the stack: `single-gpu`. */
  readonly stack: string;
  readonly source: "plan" | "trees";
  /** By address. */
  readonly resources: readonly ResourceChange[];
  /** What differed from the state when the plan was made: changed outside of Terraform. */
  readonly drift: readonly ResourceChange[];
  /** Secrets that are no resource's: values of variables. No output may have them. */
  readonly secrets?: readonly string[];
  /** Value of the Terraform output `environment` (`contract/environment.ts`), unchecked. */
  readonly environmentBefore?: unknown;
  readonly environmentAfter?: unknown;
  /** The rest of the synthesized file that rules read: `terraform` (backend, required_providers, required_version), `provider`. */
  readonly configuration?: {
    readonly terraform?: unknown;
    readonly provider?: unknown;
    readonly variable?: unknown;
  };
  /** The same before the change, where that is known. */
  readonly configurationBefore?: StackChange["configuration"];
  readonly terraformVersion?: string;
  /** What only a plan says. */
  readonly plan?: PlanFacts;
  /** What the settings aim at (`review.p99GoalMilliseconds`), where the caller has them. */
  readonly goals?: { readonly p99Milliseconds?: number };
  /** Whole sentences: what a reader must know besides what happens to resources. */
  readonly notes?: readonly string[];
  /** Modules of synthesized files, by name: which resources are in them only a plan tells. */
  readonly modules?: { readonly before: Values; readonly after: Values };
  /** Whole sentences: what the source could not tell. */
  readonly limitations: readonly string[];
}

/** The stack before a change, as a change that does nothing. */
export function unchanged(change: StackChange): StackChange {
  return {
    ...change,
    configuration: change.configurationBefore,
    resources: change.resources.flatMap(({ before, ...resource }): ResourceChange[] =>
      before === undefined
        ? []
        : [{ ...resource, before, after: before, action: "no-op", unknown: [], replacePaths: [] }],
    ),
    drift: [],
    environmentAfter: change.environmentBefore,
  };
}

/** What a plan says besides what happens to resources. */
export interface PlanFacts {
  readonly errored: boolean;
  readonly complete: boolean;
  /** Checks that fail, as Terraform names them. */
  readonly failedChecks: readonly string[];
  /** What is put off until another plan. */
  readonly deferred: readonly ResourceChange[];
  /** Outputs that change. */
  readonly outputs: PlanPart;
  readonly variables: PlanPart;
  readonly providers: PlanPart;
  /** By the address of their resource. */
  readonly provisioners: PlanPart;
  /** Actions of providers that the apply runs, since Terraform 1.14: a list for each address, with what sets them off. */
  readonly actions: PlanPart;
  /** Addresses of actions that are put off until another plan. */
  readonly deferredActions: readonly string[];
}

/** By name, secrets in place: nothing but {@link mask} may print them. */
export interface PlanPart {
  readonly values: Values;
  readonly sensitive: readonly Path[];
}

/** How bad a finding is: `error` blocks, `warning` needs attention, `note` is for information. */
export const severities = ["error", "warning", "note"] as const;
export type Severity = (typeof severities)[number];

export interface RuleFinding {
  /** Id of the rule: `image-pinned`. Its page is `docs/rules/<id>.md`. */
  readonly rule: string;
  readonly severity: Severity;
  readonly stack: string;
  /** Address of the resource; absent: the stack as a whole. */
  readonly address?: string;
  /** What is wrong, one line, no secret in it. */
  readonly message: string;
  /** How to fix it, one line. */
  readonly fix: string;
  /** Reason of the waiver that covers it; it does not count then. */
  readonly waived?: string;
  /** It was so before the change. */
  readonly existing?: true;
}

export interface Rule {
  readonly id: string;
  readonly severity: Severity;
  /** One line: what must hold. */
  readonly title: string;
  /** Everything that is wrong after the change; pure. */
  readonly find: (
    change: StackChange,
  ) => readonly Omit<RuleFinding, "rule" | "severity" | "stack">[];
}
