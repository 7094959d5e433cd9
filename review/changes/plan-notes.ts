import { block } from "../facts/values.ts";
import { releasesOf } from "../facts/workloads.ts";
import type { Action, StackChange, Values } from "../input/change.ts";
import { few } from "../input/stack-facts.ts";
import { changedSubject, type FactsOfChange, subjectAt } from "../input/subject.ts";
import { blocksOf, isObject } from "../input/value-paths.ts";

export function stackNotes(change: StackChange, facts: FactsOfChange): readonly string[] {
  return [...randomWeightNotes(change), ...bulkNotes(change), ...planNotes(change, facts)];
}

/** Maximum cost of a run of each bulk job, and the effect of a change on a running one. */
function bulkNotes(change: StackChange): readonly string[] {
  return releasesOf(change).flatMap(({ resource, values }) => {
    const bulk = block(values.bulk);
    if (bulk?.enabled !== true || resource.action === "no-op") return [];
    const { workers = 4, maxHours = 24, usdPerWorkerHour = 0, schedule = "" } = bulk;
    const hours = Number(workers) * Number(maxHours);
    const usd = (hours * Number(usdPerWorkerHour)).toFixed(2);
    const pods = `${Number(workers)} pods × ${Number(maxHours)} h`;
    const cost =
      Number(usdPerWorkerHour) > 0
        ? `A run of the bulk job costs at most ${usd} $: ${pods} × ${Number(usdPerWorkerHour)} $ per hour, then it is stopped and can be resumed.`
        : `A run of the bulk job takes at most ${hours} pod hours (${pods}); its price is unknown (usdPerWorkerHour).`;
    if (resource.action !== "update") return [cost];
    return [
      cost,
      schedule === ""
        ? "Another specification is another Job: a running one is deleted, and the new one repeats only the shards in work."
        : "A run that has started keeps its pods; the change affects the next one.",
    ];
  });
}

/** The review does not read the weights; the requirements for the host state whether they may be random. */
function randomWeightNotes({ resources, stack }: StackChange): readonly string[] {
  const requirements = resources.flatMap(({ after }) => blocksOf(after?.triggers_replace));
  const files = requirements
    .filter(({ allowRandomWeights }) => allowRandomWeights === true)
    .flatMap((required) => blocksOf(required.files).map(({ path }) => String(path)));
  const models = files.flatMap((path) => /([^/]+)\/[^/]+\/[^/]+\.onnx$/.exec(path)?.[1] ?? []);
  return models.length === 0
    ? []
    : [
        `${stack} accepts random weights, which make embeddings meaningless (allowRandomWeights), of ${few([...new Set(models)])}.`,
      ];
}

function planNotes({ plan, resources }: StackChange, facts: FactsOfChange): readonly string[] {
  if (plan === undefined) return [];
  const byAddress = new Map(resources.map((it) => [it.address, it]));
  const nameOf = (address: string) => {
    const resource = byAddress.get(address);
    return resource === undefined ? subjectAt(address) : changedSubject(resource, facts);
  };
  const word: Readonly<Partial<Record<Action, string>>> = {
    delete: "destroyed",
    replace: "replaced",
    create: "created",
    update: "updated",
  };
  const late = [
    ...plan.deferred.map((it) => `${changedSubject(it, facts)} (${word[it.action] ?? it.action})`),
    ...plan.deferredActions.map(actionName),
  ];
  const programs = invokedActions(plan.actions.values, nameOf);
  return [
    ...(programs.length === 0
      ? []
      : [`The apply invokes provider actions, whose effects no plan shows: ${few(programs)}.`]),
    ...(plan.failedChecks.length === 0 ? [] : [`Failing checks: ${few(plan.failedChecks)}.`]),
    ...(late.length === 0 ? [] : [`A second plan and apply is required for ${few(late)}.`]),
  ];
}

/** `local_command restart` */
function actionName(address: string): string {
  return address.replace(/^.*action\.(\w+)\./s, "$1 ");
}

/** Describes each action that the plan invokes: `local_command restart (after create of embed)`. */
function invokedActions(actions: Values, nameOf: (address: string) => string): readonly string[] {
  return Object.entries(actions).flatMap(([address, invocations]) =>
    blocksOf(invocations).map(({ trigger }) => {
      const { action_trigger_event: event, triggering_resource_address: resource } = isObject(
        trigger,
      )
        ? trigger
        : {};
      if (typeof event !== "string" || typeof resource !== "string") return actionName(address);
      // `AfterCreate` or `after_create`
      const words = event.replaceAll(/([a-z])([A-Z])/g, "$1 $2").replaceAll("_", " ");
      return `${actionName(address)} (${words.toLowerCase()} of ${nameOf(resource)})`;
    }),
  );
}
