import { capacityOf, type Predict } from "./changes/capacity.ts";
import { mergeReplacements } from "./changes/container-pairs.ts";
import { coverageOf } from "./changes/coverage.ts";
import { byDanger, isStep } from "./changes/danger.ts";
import { imageNames } from "./changes/diff-images.ts";
import { diffResource } from "./changes/diff-values.ts";
import { exposuresOf } from "./changes/exposure.ts";
import { impactOf } from "./changes/impact.ts";
import { asTypedChange, comparisonOf } from "./changes/impact-kinds.ts";
import { planNotes } from "./changes/plan-notes.ts";
import { forcedBy, reasonText } from "./changes/replacement-reasons.ts";
import { servingOf } from "./changes/serving.ts";
import type { Counts, ReviewedChange, StackReview } from "./changes/stack-review.ts";
import { type Verdict, verdictOf } from "./changes/verdict.ts";
import type { Action, ResourceChange, RuleFinding, StackChange } from "./input/change.ts";
import { fingerprintOf } from "./input/fingerprint.ts";
import { scrub, secretTexts } from "./input/secrets.ts";
import { titleOf } from "./input/stack-facts.ts";
import { isObject } from "./input/value-paths.ts";

/** Content of a review comment, in its order, without secrets. */
export interface Review {
  /** Bumped when a field changes meaning. */
  readonly schema: 2;
  readonly verdict: Verdict;
  /** By name. */
  readonly stacks: readonly StackReview[];
}

export interface ReviewOptions {
  /** Of all stacks. */
  readonly findings?: readonly RuleFinding[];
  readonly predict?: Predict;
}

/** Review the changes of one or more stacks. */
export function reviewOf(changes: readonly StackChange[], options: ReviewOptions = {}): Review {
  const { findings = [], predict } = options;
  const stacks = [...changes]
    .sort((a, b) => (a.stack < b.stack ? -1 : 1))
    .map((change) =>
      stackReview(
        change,
        findings.filter(({ stack }) => stack === change.stack),
        predict,
      ),
    );
  const secrets = secretTexts(changes);
  return scrubbed({ schema: 2, verdict: verdictOf(stacks), stacks }, secrets);
}

function stackReview(
  given: StackChange,
  findings: readonly RuleFinding[],
  predict: Predict | undefined,
): StackReview {
  const change = { ...given, resources: mergeReplacements(given.resources) };
  const moments = comparisonOf(change);
  const standing = {
    ...change,
    resources: change.resources.filter(({ deposed }) => deposed === undefined).map(asTypedChange),
  };
  const images = imageNames(change.resources);
  const coverage = coverageOf(moments);
  const unexamined = new Map(
    coverage.unexamined
      .filter(({ changes }) => changes)
      .map(({ address, topics }) => [address, topics]),
  );
  const changes = change.resources
    .filter(isChange)
    .map((resource): ReviewedChange => {
      const impact = impactOf(resource, moments);
      const diffs =
        resource.action === "replace" || resource.action === "update"
          ? diffResource(resource, images)
          : [];
      const forced = resource.action === "replace" ? forcedBy(resource.replacePaths, diffs) : [];
      const topics = unexamined.get(resource.address);
      return {
        address: resource.address,
        title: titleOf(resource),
        type: resource.type,
        action: resource.action as ReviewedChange["action"],
        createBeforeDestroy: resource.createBeforeDestroy,
        deposed: resource.deposed,
        forcedBy: forced,
        reason: reasonText(resource, forced),
        movedFrom: resource.movedFrom,
        imported: resource.imported,
        impact,
        diffs,
        unexamined: topics,
        isStep: topics === undefined && isStep(resource, impact),
      };
    })
    .sort(byDanger);
  return {
    stack: change.stack,
    source: change.source,
    terraformVersion: change.terraformVersion,
    counts: countsOf(change),
    changes,
    capacity: capacityOf(standing, predict),
    serving: servingOf(standing, images),
    exposures: exposuresOf(moments),
    coverage,
    findings: [...findings].sort(bySeverity),
    drift: change.drift.map((resource) => ({
      address: resource.address,
      action: resource.action,
      diffs: resource.action === "update" ? diffResource(resource, images) : [],
    })),
    limitations: change.limitations,
    outputs: Object.keys(change.plan?.outputs.values ?? {}).sort(),
    notes: [...(change.notes ?? []), ...planNotes(change)],
    fingerprint: fingerprintOf(given),
  };
}

function isChange({ action, movedFrom, imported }: ResourceChange): boolean {
  if (action === "read") return false;
  return action !== "no-op" || movedFrom !== undefined || imported === true;
}

function countsOf({ resources, drift }: StackChange): Counts {
  const managed = resources.filter(({ mode }) => mode === "managed");
  const count = (action: Action) => managed.filter((it) => it.action === action).length;
  return {
    delete: count("delete"),
    replace: count("replace"),
    update: count("update"),
    create: count("create"),
    forget: count("forget"),
    move: managed.filter(({ movedFrom }) => movedFrom !== undefined).length,
    import: managed.filter(({ imported }) => imported === true).length,
    drift: drift.length,
    unchanged: managed.filter((it) => it.action === "no-op" && it.movedFrom === undefined).length,
  };
}

const severityOrder = ["error", "warning", "note"];

function bySeverity(a: RuleFinding, b: RuleFinding): number {
  const rank = ({ severity, waived, rule, address = "", message }: RuleFinding) =>
    `${waived === undefined ? 0 : 1} ${severityOrder.indexOf(severity)} ${rule} ${address} ${message}`;
  return rank(a) < rank(b) ? -1 : 1;
}

/** Every text of a value without the secrets. */
function scrubbed<T>(value: T, secrets: readonly string[]): T {
  if (secrets.length === 0) return value;
  const walk = (inner: unknown): unknown => {
    if (typeof inner === "string") return scrub(inner, secrets);
    if (Array.isArray(inner)) return inner.map(walk);
    if (!isObject(inner)) return inner;
    return Object.fromEntries(Object.entries(inner).map(([key, item]) => [key, walk(item)]));
  };
  return walk(value) as T;
}
