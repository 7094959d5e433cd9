/** Terraform's action on one resource; a replacement is one action, regardless of its order. */
export type Action = "delete" | "replace" | "update" | "create" | "forget" | "read" | "no-op";

/** Path to a value: attribute names and list indices. */
export type Path = readonly (string | number)[];

export interface ResourceChange {
  /** Terraform address including the module: `docker_container.embed`. */
  readonly address: string;
  readonly type: string;
  readonly name: string;
  /** Construct path, if the synthesized file contains it: `single-gpu/embed/container`. */
  readonly constructPath?: string;
  /** Namespace and name of its provider, if known: `hashicorp/aws`. */
  readonly provider?: string;
  /** Commands of `local-exec` provisioners, unmasked; empty for other provisioners. */
  readonly programs?: readonly string[];
  readonly mode: "managed" | "data" | "ephemeral";
  readonly action: Action;
  /** Actions as listed by Terraform, in order. */
  readonly actions?: readonly string[];
  /** Terraform's key of an object left over from an earlier replacement, distinct from the current object at the address. */
  readonly deposed?: string;
  /** Whether a replacement creates the new object first. */
  readonly createBeforeDestroy?: boolean;
  /** Unmasked values before and after; print them only through {@link mask}. `undefined` if the resource does not exist. */
  readonly before?: Values;
  readonly after?: Values;
  /** Paths in `after` that are known only after the apply. */
  readonly unknown: readonly Path[];
  /** Paths marked as sensitive by Terraform or known to be secret, in `before` or `after`. */
  readonly sensitive: readonly Path[];
  /** Those of them that Terraform marks. */
  readonly marked?: readonly Path[];
  /** Expressions of the configuration, constants as values. */
  readonly literals?: Values;
  /** Attributes that force the replacement; for synthesized folders, as far as they are known. */
  readonly replacePaths: readonly Path[];
  /** Terraform's `action_reason`. */
  readonly reason?: string;
  readonly movedFrom?: string;
  readonly imported?: boolean;
  /** Write-only attributes in the configuration, whose values no plan contains. */
  readonly writeOnly?: readonly string[];
  /** Address of the container's `docker_image`. */
  readonly imageResource?: string;
}

export type Values = Readonly<Record<string, unknown>>;

/** A change of one stack, read from a Terraform plan or two synthesized files. Rules and reports use only this model. */
export interface StackChange {
  readonly stack: string;
  readonly source: "plan" | "synthesis";
  /** Sorted by address. */
  readonly resources: readonly ResourceChange[];
  /** Resources changed outside of Terraform. */
  readonly drift: readonly ResourceChange[];
  /** Values of sensitive variables, which no output may contain. */
  readonly secrets?: readonly string[];
  /** Value of the Terraform output `environment` (`contract/environment.ts`), unchecked. */
  readonly environmentBefore?: unknown;
  readonly environmentAfter?: unknown;
  /** Other parts of the configuration: `terraform` (backend, required_providers, required_version) and `provider`. */
  readonly configuration?: {
    readonly terraform?: unknown;
    readonly provider?: unknown;
    readonly variable?: unknown;
    /** Changed outputs that are not sensitive, in a plan. */
    readonly outputs?: unknown;
    /** Arguments of modules by address, in a plan. */
    readonly calls?: unknown;
  };
  /** Configuration before the change, if known. */
  readonly configurationBefore?: StackChange["configuration"];
  /** Program that created the plan, if it is not Terraform. */
  readonly engine?: "OpenTofu";
  readonly terraformVersion?: string;
  /** Sources of the providers whose versions a lock file fixes: `hashicorp/aws`. */
  readonly lockedProviders?: readonly string[];
  /** Data available only in a plan. */
  readonly plan?: PlanFacts;
  /** Goals from the settings (`review.p99GoalMilliseconds`), if available. */
  readonly goals?: { readonly p99Milliseconds?: number };
  /** Sentences about effects beyond resource changes. */
  readonly notes?: readonly string[];
  /** Module calls in synthesized files, by name; their resources are listed only in a plan. */
  readonly modules?: { readonly before: Values; readonly after: Values };
  /** Sentences about what the source cannot show. */
  readonly limitations: readonly string[];
}

/** Returns the stack before a change, in the form of a change without actions. */
export function stateBefore(change: StackChange): StackChange {
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

/** Contents of a plan other than resource changes. */
export interface PlanFacts {
  readonly errored: boolean;
  readonly complete: boolean;
  /** Failing checks, by Terraform's display name. */
  readonly failedChecks: readonly string[];
  /** Changes deferred to a later plan. */
  readonly deferred: readonly ResourceChange[];
  /** Changed outputs. */
  readonly outputs: PlanPart;
  readonly variables: PlanPart;
  readonly providers: PlanPart;
  /** By address of the resource. */
  readonly provisioners: PlanPart;
  /** Provider actions invoked by the apply (Terraform 1.14 and newer), with their triggers, by address. */
  readonly actions: PlanPart;
  /** Addresses of provider actions deferred to a later plan. */
  readonly deferredActions: readonly string[];
}

/** Unmasked values by name; print them only through {@link mask}. */
export interface PlanPart {
  readonly values: Values;
  readonly sensitive: readonly Path[];
}

/** `error` blocks the change, `warning` needs attention, `note` is informational. */
export const severities = ["error", "warning", "note"] as const;
export type Severity = (typeof severities)[number];

export interface RuleFinding {
  /** Id of the rule: `image-pinned`. Its page is `docs/rules/<id>.md`. */
  readonly rule: string;
  readonly severity: Severity;
  readonly stack: string;
  /** Address of the resource; absent for findings about the whole stack. */
  readonly address?: string;
  /** One line without secrets. */
  readonly message: string;
  readonly fix: string;
  /** Reason of the covering waiver; a waived finding does not affect the verdict. */
  readonly waived?: string;
  /** Whether the finding existed before the change. */
  readonly existing?: true;
}
