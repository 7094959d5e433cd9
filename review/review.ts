import { capacityOf, type Predict } from "./changes/capacity.ts";
import { type Consequence, consequenceOf, momentsOf, typedChange } from "./changes/consequences.ts";
import { coverageOf } from "./changes/coverage.ts";
import { imageNames } from "./changes/diff-images.ts";
import type { DiffBlock } from "./changes/diff-line.ts";
import { diffResource } from "./changes/diff-values.ts";
import { exposuresOf } from "./changes/exposure.ts";
import { servingOf } from "./changes/serving.ts";
import type { Counts, ReviewedChange, StackReview } from "./changes/stack-review.ts";
import { type Verdict, verdictOf } from "./changes/verdict.ts";
import type {
  Action,
  Path,
  ResourceChange,
  RuleFinding,
  StackChange,
  Values,
} from "./input/change.ts";
import { fingerprintOf } from "./input/fingerprint.ts";
import { scrub, secretTexts } from "./input/secrets.ts";
import { few, isOneShot, titleOf, withoutKey } from "./input/stack-facts.ts";
import { blocksOf, isObject, pathText } from "./input/value-paths.ts";

/** Everything that a comment says, in the order in which it says it, without a secret. */
export interface Review {
  /** Bumped when a field changes meaning. */
  readonly schema: 1;
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
  return scrubbed({ schema: 1, verdict: verdictOf(stacks), stacks }, secrets);
}

function stackReview(
  given: StackChange,
  findings: readonly RuleFinding[],
  predict: Predict | undefined,
): StackReview {
  const change = { ...given, resources: withPairs(given.resources) };
  const moments = momentsOf(change);
  const standing = {
    ...change,
    resources: change.resources.filter(({ deposed }) => deposed === undefined).map(typedChange),
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
      const consequence = consequenceOf(resource, moments);
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
        because: becauseOf(resource, forced),
        movedFrom: resource.movedFrom,
        imported: resource.imported,
        consequence,
        diffs,
        unexamined: topics,
        isStep: topics === undefined && isStep(resource, consequence),
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
    notKnown: change.notKnown,
    outputs: Object.keys(change.plan?.outputs.values ?? {}).sort(),
    besides: [...(change.besides ?? []), ...besides(change)],
    fingerprint: fingerprintOf(given),
  };
}

/** Terraform's words for what no attribute says. */
const reasons: Readonly<Record<string, string>> = {
  replace_because_tainted:
    "It is tainted: an apply failed in the middle of it, or somebody marked it.",
  replace_by_request: "Somebody asked for it, with -replace.",
  replace_by_triggers: "A resource that it follows changes (replace_triggered_by).",
  replace_because_cannot_update: "Its provider cannot change it in place.",
  delete_because_wrong_repetition:
    "It has a key, and count or for_each is gone, or the other way round.",
  delete_because_count_index: "count is lower.",
  delete_because_each_key: "for_each has its key no more.",
  delete_because_no_module: "Its module is gone.",
  delete_because_no_move_target: "It was to be moved to an address that there is none of.",
};

/** What an attribute says better is not said. */
function becauseOf({ reason = "" }: ResourceChange, forced: readonly string[]): string | undefined {
  const isSaid = forced.length > 0 && /^replace_(by_triggers|because_cannot_update)$/.test(reason);
  return isSaid || !Object.hasOwn(reasons, reason) ? undefined : reasons[reason];
}

function besides({ plan }: StackChange): readonly string[] {
  if (plan === undefined) return [];
  const word: Readonly<Partial<Record<Action, string>>> = {
    delete: "destroyed",
    replace: "replaced",
  };
  const late = [
    ...plan.deferred.map(({ address, action }) => `${address} (${word[action] ?? action})`),
    ...plan.deferredActions,
  ];
  const programs = invokedActions(plan.actions.values);
  return [
    ...(programs.length === 0
      ? []
      : [`The apply runs ${few(programs)}: what an action does is in no plan.`]),
    ...(plan.failedChecks.length === 0 ? [] : [`Checks fail: ${few(plan.failedChecks)}.`]),
    ...(late.length === 0 ? [] : [`Another plan is needed afterwards, for ${few(late)}.`]),
  ];
}

/** `action.local_command.x (after create of docker_container.a)` */
function invokedActions(actions: Values): readonly string[] {
  return Object.entries(actions).flatMap(([address, invocations]) =>
    blocksOf(invocations).map(({ trigger }) => {
      const { action_trigger_event: event, triggering_resource_address: resource } = isObject(
        trigger,
      )
        ? trigger
        : {};
      if (typeof event !== "string" || typeof resource !== "string") return address;
      // `AfterCreate` or `after_create`
      const words = event.replaceAll(/([a-z])([A-Z])/g, "$1 $2").replaceAll("_", " ");
      return `${address} (${words.toLowerCase()} of ${resource})`;
    }),
  );
}

function isChange({ action, movedFrom, imported }: ResourceChange): boolean {
  if (action === "read") return false;
  return action !== "no-op" || movedFrom !== undefined || imported === true;
}

/**
 * A one-shot container is another instance for every content: Terraform says that one is destroyed and one is made. To a reader
 * it is one thing that is replaced, as two trees have it.
 */
export function withPairs(resources: readonly ResourceChange[]): readonly ResourceChange[] {
  const groups = new Map<string, ResourceChange[]>();
  for (const resource of resources) {
    if (resource.type !== "docker_container" || resource.deposed !== undefined) continue;
    if (resource.address === withoutKey(resource.address)) continue;
    const key = withoutKey(resource.address);
    groups.set(key, [...(groups.get(key) ?? []), resource]);
  }
  const paired = new Map<string, ResourceChange>();
  for (const [address, group] of groups) {
    const old = group.filter(({ action }) => action === "delete");
    const fresh = group.filter(({ action }) => action === "create");
    const [was, is] = [old[0], fresh[0]];
    // keys of anything else are things of their own
    if (group.length !== 2 || !isOneShot(was?.before) || !isOneShot(is?.after)) continue;
    if (was === undefined || is === undefined) continue;
    paired.set(address, {
      ...is,
      address,
      action: "replace",
      createBeforeDestroy: true,
      before: was.before,
      sensitive: [...was.sensitive, ...is.sensitive],
      replacePaths: [["for_each"]],
    });
  }
  return [
    ...resources.filter(
      ({ type, address, deposed }) =>
        type !== "docker_container" || deposed !== undefined || !paired.has(withoutKey(address)),
    ),
    ...paired.values(),
  ].sort((a, b) => (a.address < b.address ? -1 : 1));
}

/** What forces a replacement, each with what is different there. */
function forcedBy(paths: readonly Path[], diffs: readonly DiffBlock[]): readonly string[] {
  const lines = diffs.filter(({ title }) => title === "").flatMap(({ lines: all }) => all);
  if (paths.some(([first]) => first === "for_each")) return ["what it runs with"];
  const texts = paths.flatMap((path) => {
    const [first = ""] = path;
    if (first === "replace_triggered_by") return ["a resource that it follows"];
    const own = lines.filter(
      ({ where }) => where === first || startsWithName(where, String(first)),
    );
    if (own.length === 0 || own.length > 3) return [pathText(path)];
    return own.map(({ where, before, after }) => {
      if (before === undefined) return `${where} (${after ?? ""} is added)`;
      return after === undefined
        ? `${where} (${before} is gone)`
        : `${where} (${before} → ${after})`;
    });
  });
  return [...new Set(texts)];
}

function startsWithName(where: string, name: string): boolean {
  return where.startsWith(name) && /^[.[ ]/.test(where.slice(name.length));
}

/** A step of a deployment: nothing runs in it afterwards. */
function isStep({ type, after, before }: ResourceChange, consequence: Consequence | undefined) {
  const noHarm = consequence === undefined || (consequence.down.length === 0 && !consequence.lost);
  if (type === "terraform_data" || type === "null_resource") return noHarm;
  return type === "docker_container" && isOneShot(after ?? before) && noHarm;
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

/**
 * How bad a change is: 0 a service does not answer, 1 something is lost, 2 something is destroyed, forgotten, not there for a
 * while for whoever uses it, worse afterwards or not examined, 3 none of it.
 */
export function dangerOf(change: ReviewedChange): 0 | 1 | 2 | 3 {
  const { action, consequence, isStep: step } = change;
  if (step) return 3;
  if (consequence !== undefined && consequence.down.length > 0) return 0;
  if (consequence?.lost) return 1;
  const replacesUnknown = action === "replace" && consequence === undefined;
  const isWorse = consequence?.worse !== undefined || consequence?.waits === true;
  const isHarmful = replacesUnknown || isWorse || change.unexamined !== undefined;
  return action === "delete" || action === "forget" || isHarmful ? 2 : 3;
}

const dangers = ["delete", "replace", "forget", "update", "create", "no-op"];

/** The dangerous first, what is destroyed before what is replaced; among those what is not answered meanwhile, and what is lost. */
function byDanger(a: ReviewedChange, b: ReviewedChange): number {
  const rank = (change: ReviewedChange) => [
    change.isStep ? 1 : 0,
    dangerOf(change) === 3 ? 1 : 0,
    dangers.indexOf(change.action),
    change.deposed === undefined ? 0 : 1,
    dangerOf(change),
  ];
  const [left, right] = [rank(a), rank(b)];
  const different = left.findIndex((value, index) => value !== right[index]);
  if (different >= 0) return left[different]! - right[different]!;
  return a.address < b.address ? -1 : 1;
}

const severityOrder = ["error", "warning", "note"];

function bySeverity(a: RuleFinding, b: RuleFinding): number {
  const rank = ({ severity, waived, rule, address = "", what }: RuleFinding) =>
    `${waived === undefined ? 0 : 1} ${severityOrder.indexOf(severity)} ${rule} ${address} ${what}`;
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
