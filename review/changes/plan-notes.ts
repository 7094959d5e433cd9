import type { Action, StackChange, Values } from "../input/change.ts";
import { few } from "../input/stack-facts.ts";
import { blocksOf, isObject } from "../input/value-paths.ts";

/** Notes about a stack that are not about one change. */
export function stackNotes(change: StackChange): readonly string[] {
  return [...randomWeightNotes(change), ...planNotes(change)];
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

function planNotes({ plan }: StackChange): readonly string[] {
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
      : [`The apply invokes provider actions, whose effects no plan shows: ${few(programs)}.`]),
    ...(plan.failedChecks.length === 0 ? [] : [`Failing checks: ${few(plan.failedChecks)}.`]),
    ...(late.length === 0 ? [] : [`A second plan and apply is required for ${few(late)}.`]),
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
