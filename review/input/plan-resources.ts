import { valueAt } from "../../contract/issue-lines.ts";
import type { Action, Path, ResourceChange } from "./change.ts";
import type { Plan, PlannedResource } from "./plan-schema.ts";
import { ReviewError } from "./review-error.ts";
import { secretPaths } from "./secrets.ts";
import {
  changedPaths,
  isObject,
  isUnset,
  markedPaths,
  serverManagedFields,
} from "./value-paths.ts";

/** Drift, except for fields that Kubernetes maintains and replica counts that an autoscaler owns. */
export function driftOf(plan: Plan, fileName: string): readonly ResourceChange[] {
  const isScaled = (plan.resource_changes ?? []).some(({ type }) =>
    /^kubernetes_horizontal_pod_autoscaler/.test(type),
  );
  return changesOf(plan.resource_drift ?? [], fileName).filter((it) =>
    isRealDrift(it, (path) => {
      if (!it.type.startsWith("kubernetes_")) return false;
      const last = String(path.at(-1));
      return path[0] === "metadata"
        ? serverManagedFields.has(last)
        : isScaled && last === "replicas";
    }),
  );
}

/** Ignores differences between `null` and `false`, 0 and empty values, because providers store unset attributes as either. */
function isRealDrift(
  { action, before, after }: ResourceChange,
  isExcluded: (path: Path) => boolean,
): boolean {
  if (action === "no-op") return false;
  if (action !== "update") return true;
  return changedPaths(before, after).some(
    (path) =>
      !isExcluded(path) &&
      [valueAt(before, path), valueAt(after, path)].some((value) => value !== 0 && !isUnset(value)),
  );
}

export function changesOf(
  list: readonly PlannedResource[],
  fileName: string,
): readonly ResourceChange[] {
  return list
    .map((it) => resourceChange(it, fileName))
    .sort((a, b) => {
      if (a.address !== b.address) return a.address < b.address ? -1 : 1;
      return (a.deposed ?? "") < (b.deposed ?? "") ? -1 : 1;
    });
}

function resourceChange(it: PlannedResource, fileName: string): ResourceChange {
  const { actions, after_unknown, before_sensitive, after_sensitive } = it.change;
  const before = isObject(it.change.before) ? it.change.before : undefined;
  const after = isObject(it.change.after) ? it.change.after : undefined;
  const marked = [...markedPaths(before_sensitive), ...markedPaths(after_sensitive)];
  return {
    address: it.address,
    type: it.type,
    name: it.name,
    mode: it.mode,
    action: actionOf(actions, `${fileName}: ${it.address}`),
    ...(actions.join() === "create,delete" ? { createBeforeDestroy: true } : {}),
    before,
    after,
    unknown: markedPaths(after_unknown),
    marked,
    sensitive: unique([
      ...marked,
      ...secretPaths(it.type, before),
      // an unchanged resource has its secrets at the same paths
      ...(it.change.actions.join() === "no-op" && before !== undefined
        ? []
        : secretPaths(it.type, after)),
    ]),
    replacePaths: it.change.replace_paths ?? [],
    actions,
    ...(it.provider_name ? { provider: it.provider_name.split("/").slice(-2).join("/") } : {}),
    ...(it.deposed ? { deposed: it.deposed } : {}),
    ...(it.action_reason ? { reason: it.action_reason } : {}),
    ...(it.previous_address ? { movedFrom: it.previous_address } : {}),
    ...(isObject(it.change.importing) ? { imported: true } : {}),
  };
}

const singleActions = ["no-op", "create", "read", "update", "delete", "forget"] as const;
const replaceActions = ["delete,create", "create,delete", "create,forget", "forget,create"];

function actionOf(actions: readonly string[], resource: string): Action {
  // an ephemeral resource is opened during the plan and again during the application
  const words = actions.join().replace(/^open$/, "read");
  const action = replaceActions.includes(words)
    ? "replace"
    : singleActions.find((single) => single === words);
  if (action !== undefined) return action;
  throw new ReviewError(`${resource}: change.actions must be an action of Terraform 1`);
}

export function unique(paths: readonly Path[]): readonly Path[] {
  const seen = new Map(paths.map((path) => [JSON.stringify(path), path]));
  return [...seen.values()];
}
