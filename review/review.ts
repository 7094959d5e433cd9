import { capacityOf, type Predict } from "./changes/capacity.ts";
import { mergeReplacements } from "./changes/container-pairs.ts";
import { coverageOf, type Topic } from "./changes/coverage.ts";
import { byDanger, isStep } from "./changes/danger.ts";
import { imageNames } from "./changes/diff-images.ts";
import { diffResource, type ImageNames } from "./changes/diff-values.ts";
import { exposuresOf } from "./changes/exposure.ts";
import { impactOf } from "./changes/impact.ts";
import { asTypedChange, comparisonOf, type StackComparison } from "./changes/impact-kinds.ts";
import { modelNotes } from "./changes/model-changes.ts";
import { stackNotes } from "./changes/plan-notes.ts";
import { forcedBy, reasonText } from "./changes/replacement-reasons.ts";
import { servingOf } from "./changes/serving.ts";
import type { Counts, Review, ReviewedChange, StackReview } from "./changes/stack-review.ts";
import { verdictOf } from "./changes/verdict.ts";
import {
  type Action,
  type ResourceChange,
  type RuleFinding,
  type StackChange,
  severities,
} from "./input/change.ts";
import { fingerprintOf } from "./input/fingerprint.ts";
import { scrubber, secretTexts } from "./input/secret-texts.ts";
import { titleOf } from "./input/stack-facts.ts";
import { changedSubject } from "./input/subject.ts";
import { isObject } from "./input/value-paths.ts";

export interface ReviewOptions {
  /** Findings of all stacks. */
  readonly findings?: readonly RuleFinding[];
  readonly predict?: Predict;
}

/** Reviews the changes of one or more stacks. */
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
  unmerged: StackChange,
  findings: readonly RuleFinding[],
  predict: Predict | undefined,
): StackReview {
  const change = { ...unmerged, resources: mergeReplacements(unmerged.resources) };
  const comparison = comparisonOf(change);
  const current = {
    ...change,
    resources: change.resources.filter(({ deposed }) => deposed === undefined).map(asTypedChange),
  };
  const images = imageNames(change.resources);
  const coverage = coverageOf(comparison);
  const gaps = new Map<string, readonly Topic[]>();
  for (const { address, topics, changes } of coverage.unexamined) {
    if (changes) gaps.set(address, [...(gaps.get(address) ?? []), ...topics]);
  }
  return {
    stack: change.stack,
    source: change.source,
    engine: change.engine,
    terraformVersion: change.terraformVersion,
    counts: countsOf(change),
    changes: change.resources
      .filter(isChange)
      .map((resource) => reviewedChange(resource, comparison, images, gaps.get(resource.address)))
      .sort(byDanger),
    capacity: capacityOf(current, predict),
    serving: servingOf(current, images),
    exposures: exposuresOf(comparison),
    coverage,
    findings: [...findings].sort(bySeverity),
    drift: change.drift.map((resource) => ({
      address: resource.address,
      action: resource.action,
      diffs: resource.action === "update" ? diffResource(resource, images) : [],
    })),
    limitations: change.limitations,
    outputs: Object.keys(change.plan?.outputs.values ?? {}).sort(),
    notes: [
      ...(change.notes ?? []),
      ...stackNotes(change, comparison),
      ...modelNotes(current, predict),
    ],
    fingerprint: fingerprintOf(unmerged),
  };
}

function reviewedChange(
  resource: ResourceChange,
  comparison: StackComparison,
  images: ImageNames,
  unexamined: readonly Topic[] | undefined,
): ReviewedChange {
  const { action } = resource;
  const impact = impactOf(resource, comparison);
  const diffs = action === "replace" || action === "update" ? diffResource(resource, images) : [];
  const forced = action === "replace" ? forcedBy(resource.replacePaths, diffs) : [];
  return {
    address: resource.address,
    title: titleOf(resource),
    subject: changedSubject(resource, comparison),
    type: resource.type,
    action: action as ReviewedChange["action"],
    createBeforeDestroy: resource.createBeforeDestroy,
    deposed: resource.deposed,
    forcedBy: forced,
    reason: reasonText(resource, forced),
    movedFrom: resource.movedFrom,
    imported: resource.imported,
    impact,
    diffs,
    unexamined,
    isStep: unexamined === undefined && isStep(resource, impact),
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

function bySeverity(a: RuleFinding, b: RuleFinding): number {
  const rank = ({ severity, waived, rule, address = "", message }: RuleFinding) =>
    `${waived === undefined ? 0 : 1} ${severities.indexOf(severity)} ${rule} ${address} ${message}`;
  return rank(a) < rank(b) ? -1 : 1;
}

/** Removes the secrets from all texts of a value. */
function scrubbed<T>(value: T, secrets: readonly string[]): T {
  if (secrets.length === 0) return value;
  const scrub = scrubber(secrets);
  const walk = (inner: unknown): unknown => {
    if (typeof inner === "string") return scrub(inner);
    if (Array.isArray(inner)) return inner.map(walk);
    if (!isObject(inner)) return inner;
    return Object.fromEntries(Object.entries(inner).map(([key, item]) => [key, walk(item)]));
  };
  return walk(value) as T;
}
