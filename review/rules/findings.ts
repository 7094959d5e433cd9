import { type RuleFinding, type StackChange, severities, stateBefore } from "../input/change.ts";
import { titleOf, withoutKey } from "../input/stack-facts.ts";
import { isWithin } from "../input/value-paths.ts";
import type { ReviewRule } from "./rule.ts";
import { rules as builtInRules } from "./rules.ts";

/** Accepts findings of a rule until a date, with a reason. */
export interface Waiver {
  /** Id of a rule, possibly of an earlier version. */
  readonly rule: string;
  /**
   * Address of a resource, with or without instance key, or path of a construct, which includes its children:
   * `single-gpu/triton-onnx`.
   *
   * @default - all findings of the rule in the stack
   */
  readonly address?: string;
  readonly reason: string;
  /** Last day on which it is valid, `YYYY-MM-DD`. */
  readonly expires: string;
}

export interface FindingsOptions {
  /** Waivers in the settings of the environment. */
  readonly waivers: readonly Waiver[];
  /** `YYYY-MM-DD`. */
  readonly today: string;
  /** @default - all built-in rules with their severity */
  readonly rules?: readonly ReviewRule[];
}

/** All findings in a stack after the change, most severe first, in a stable order. */
export function findingsOfChange(
  change: StackChange,
  { waivers, today, rules = builtInRules }: FindingsOptions,
): readonly RuleFinding[] {
  const before = findingsBefore(change, rules);
  const covering = new Map<Waiver, CoveredFinding[]>(waivers.map((waiver) => [waiver, []]));
  const found = findingsIn(change, rules).map((finding): RuleFinding => {
    const all = waivers.filter((waiver) => covers(waiver, finding, change));
    const valid = all.find(({ expires }) => expires >= today);
    for (const waiver of all) covering.get(waiver)?.push({ finding, isOpen: valid === undefined });
    return {
      ...finding,
      ...(before.has(keyOf(finding)) || before.has(keyWithoutInstance(finding))
        ? { existing: true }
        : {}),
      ...(valid !== undefined && { waived: valid.reason }),
    };
  });
  const aboutWaivers = waivers.flatMap((waiver) =>
    waiverFindings(waiver, covering.get(waiver) ?? [], change.stack, today),
  );
  return [...found, ...aboutWaivers].sort(byImportance);
}

function findingsIn(given: StackChange, rules: readonly ReviewRule[]): readonly RuleFinding[] {
  // deposed objects are no longer part of the stack
  const resources = given.resources.filter(({ deposed }) => deposed === undefined);
  const change = { ...given, resources };
  return rules.flatMap((rule) =>
    rule
      .find(change)
      .map((found) => ({ rule: rule.id, severity: rule.severity, stack: change.stack, ...found })),
  );
}

/**
 * Keys of the findings before the change. A destroyed instance passes its findings on to new instances of the same resource, because
 * an instance key can be a hash of the contents.
 */
function findingsBefore(change: StackChange, rules: readonly ReviewRule[]): ReadonlySet<string> {
  const destroyed = new Set(
    change.resources.flatMap(({ action, address }) => (action === "delete" ? [address] : [])),
  );
  return new Set(
    findingsIn(stateBefore(change), rules).map((finding) =>
      destroyed.has(finding.address ?? "") ? keyWithoutInstance(finding) : keyOf(finding),
    ),
  );
}

function keyOf({ rule, address, message }: RuleFinding): string {
  return JSON.stringify([rule, address, message]);
}

function keyWithoutInstance(finding: RuleFinding): string {
  const { address } = finding;
  return keyOf({ ...finding, address: address && withoutKey(address) });
}

function covers(waiver: Waiver, { rule, address }: RuleFinding, change: StackChange): boolean {
  if (waiver.rule !== rule) return false;
  if (waiver.address === undefined) return true;
  if (address === undefined) return false;
  if (waiver.address === address || waiver.address === withoutKey(address)) {
    return true;
  }
  const resource = change.resources.find((it) => it.address === address);
  if (resource === undefined) return false;
  const path = resource.constructPath ?? `${change.stack}/${titleOf(resource)}`;
  return isWithin(path.split("/"), waiver.address.split("/"));
}

/** Ids of findings about waivers, which cannot be waived. */
export const waiverIds = ["waiver-expired", "waiver-unused"] as const;
type WaiverId = (typeof waiverIds)[number];

/** A finding covered by a waiver. */
interface CoveredFinding {
  readonly finding: RuleFinding;
  /** Whether no valid waiver covers it. */
  readonly isOpen: boolean;
}

function waiverFindings(
  waiver: Waiver,
  covered: readonly CoveredFinding[],
  stack: string,
  today: string,
): readonly RuleFinding[] {
  const location = waiver.address === undefined ? "" : ` at ${waiver.address}`;
  const common = {
    stack,
    ...(waiver.address !== undefined && { address: waiver.address }),
  };
  if (covered.length === 0) {
    const rule: WaiverId = "waiver-unused";
    return [
      {
        ...common,
        rule,
        severity: "note",
        message: `the waiver of ${waiver.rule}${location} covers nothing`,
        fix: "remove it from the waivers in the settings",
      },
    ];
  }
  const open = covered.filter(({ isOpen }) => isOpen);
  // another waiver covers the findings
  if (waiver.expires >= today || open.length === 0) return [];
  const rule: WaiverId = "waiver-expired";
  return [
    {
      ...common,
      rule,
      // not more severe than the findings that it covered
      severity: open.some(({ finding }) => finding.severity !== "note") ? "warning" : "note",
      message: `the waiver of ${waiver.rule}${location} expired on ${waiver.expires}: ${waiver.reason}`,
      fix: "fix the finding, or set a new reason and date in the waivers of the settings",
    },
  ];
}

const ruleOrder = builtInRules.map(({ id }) => id);

function byImportance(a: RuleFinding, b: RuleFinding): number {
  const rank = (rule: string) =>
    ruleOrder.includes(rule) ? ruleOrder.indexOf(rule) : ruleOrder.length;
  return (
    severities.indexOf(a.severity) - severities.indexOf(b.severity) ||
    rank(a.rule) - rank(b.rule) ||
    (a.address ?? "").localeCompare(b.address ?? "", "en") ||
    a.message.localeCompare(b.message, "en")
  );
}
